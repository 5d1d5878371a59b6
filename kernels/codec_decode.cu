// The fixed layout of lam_vllm/codec, decoded in one pass: a thread block takes a tile of 128 blocks, finds by
// look-back where its words begin, and turns planes into values, eight lanes to a block, 16 bytes a lane written.
// Nothing is read outside the words that there are: what widths claim beyond them is a fault, and reads as zeros.
#include "lam/matrix.h"
#include "lam/scan.h"

namespace lam::decoding {

constexpr u32 THREADS = 256;
constexpr u32 ROUNDS = TILE / (THREADS / LANES);  // 4
constexpr u32 STRANGE_WIDTH = 1;                  // faults
constexpr u32 OTHER_LENGTH = 2;

struct Source {
    const u32* words;
    u32 length;
};

// A lane's numbers of the block whose words begin at `start`.
__device__ __forceinline__ void read_block(Source source, u32 start, u32 width, u32 numbers[OF_LANE]) {
    const u32 lane = threadIdx.x % LANES;
    const bool inside = start + words_of(width) <= source.length;
    const u32* words = source.words + start;
    const u32 planes = width == ESCAPED || !inside ? 0 : width;
    for (u32 e = 0; e < OF_LANE; ++e) numbers[e] = 0;
    for (u32 octet = 0; octet < MOST_WIDTH / OCTET; ++octet) {
        if (!__any_sync(ALL, planes > octet * OCTET)) break;
        const u32 plane = octet * OCTET + lane;
        take_share(turned(plane < planes ? words[plane] : 0), octet, numbers);
    }
    if (width == ESCAPED && inside)
        for (u32 e = 0; e < OF_LANE; ++e) numbers[e] = words[lane * OF_LANE + e];
}

// Four widths from block `first` on; of a block behind the last, and where the byte is no width, 0.
__device__ __forceinline__ u32 checked_widths(const u8* widths, u32 blocks, u32 first, Tiles* tiles) {
    u32 packed = 0;
    if (first + 4 <= blocks)
        packed = *reinterpret_cast<const u32*>(widths + first);
    else
        for (u32 i = 0; first + i < blocks; ++i) packed |= static_cast<u32>(widths[first + i]) << (8 * i);
    for (u32 i = 0; i < 4; ++i) {
        if (is_width((packed >> (8 * i)) & 0xFF)) continue;
        packed &= ~(0xFFu << (8 * i));
        atomicOr(&tiles->faults, STRANGE_WIDTH);
    }
    return packed;
}

}  // namespace lam::decoding

// widths: a byte a block, at a multiple of 4; words: `length` of them; rows (N, D) float32; tiles: zeros.
extern "C" __global__ void __launch_bounds__(lam::decoding::THREADS)
lam_codec_decode(const lam::u8* widths, const lam::u32* words, lam::u32 length, float step, float* rows,
                 lam::u64 dimension, lam::u32 blocks, lam::u32 blocks_per_row, bool vector, lam::Tiles* tiles) {
    using namespace lam;
    using namespace lam::decoding;
    const Shape shape = {dimension, blocks, blocks_per_row, vector};
    __shared__ u32 tile;
    __shared__ u32 before;
    __shared__ u32 packed[TILE / 4];
    __shared__ u32 starts[TILE];
    if (threadIdx.x == 0) tile = atomicAdd(&tiles->drawn, 1u);
    __syncthreads();
    if (threadIdx.x < WARP) {
        packed[threadIdx.x] = checked_widths(widths, shape.blocks, tile * TILE + 4 * threadIdx.x, tiles);
        const u32 own = starts_of(packed[threadIdx.x], starts + 4 * threadIdx.x);
        const u32 found = words_before(tiles, tile, own);
        if (threadIdx.x == 0) before = found;
        if (threadIdx.x == 0 && tile == gridDim.x - 1 && found + own != length) atomicOr(&tiles->faults, OTHER_LENGTH);
    }
    __syncthreads();
#pragma unroll
    for (u32 round = 0; round < ROUNDS; ++round) {
        const u32 block = round * (THREADS / LANES) + threadIdx.x / LANES;
        const u32 width = reinterpret_cast<const u8*>(packed)[block];
        u32 numbers[OF_LANE];
        float values[OF_LANE];
        read_block({words, length}, before + starts[block], width, numbers);
        for (u32 e = 0; e < OF_LANE; ++e) values[e] = value_of(numbers[e], width, step);
        store(rows, shape, place_of(shape, tile * TILE + block, threadIdx.x % LANES), values);
    }
}
