// The fixed layout of lam_vllm/codec, encoded in one pass: every value is read once, every word written once.
// A tile of 128 blocks is one thread block: a warp holds 16 blocks in registers, eight lanes to a block, finds their
// widths, learns by look-back where the tile's words go, and writes planes. Words begin at any multiple of 4 bytes, so
// they are written 4 bytes a lane, neighbours by neighbours; values are read 16 bytes a lane.
#include "lam/matrix.h"
#include "lam/scan.h"

namespace lam::encoding {

constexpr u32 THREADS = 256;
constexpr u32 ROUNDS = 4;                                       // blocks that eight lanes hold
constexpr u32 BLOCKS_OF_WARP = ROUNDS * (WARP / LANES);         // 16
static_assert(THREADS / WARP * BLOCKS_OF_WARP == TILE, "a tile is what one thread block holds");

struct Held {
    u32 numbers[OF_LANE];
    u32 width;
};

__device__ __forceinline__ Held quantised(const float values[OF_LANE], Bound bound) {
    Held held;
    u32 used = quantise_lane(values, bound, held.numbers);
#pragma unroll
    for (u32 distance = LANES / 2; distance > 0; distance /= 2) used |= __shfl_xor_sync(ALL, used, distance);
    held.width = width_of(used);
    if (held.width == ESCAPED)
        for (u32 e = 0; e < OF_LANE; ++e) held.numbers[e] = bits_of(values[e]);
    return held;
}

__device__ __forceinline__ void write_block(const Held& held, u32* words) {
    const u32 lane = threadIdx.x % LANES;
    const u32 planes = held.width == ESCAPED ? 0 : held.width;
    for (u32 octet = 0; octet < MOST_WIDTH / OCTET; ++octet) {
        if (!__any_sync(ALL, planes > octet * OCTET)) break;  // the warp's widest block decides
        const u32 word = turned(share_of(held.numbers, octet));
        if (octet * OCTET + lane < planes) words[octet * OCTET + lane] = word;
    }
    if (held.width == ESCAPED)
        for (u32 e = 0; e < OF_LANE; ++e) words[lane * OF_LANE + e] = held.numbers[e];
}

// Warp 0: the tile's widths to memory, its starts to shared memory; returns what stands before the tile.
__device__ __forceinline__ u32 placed(Tiles* tiles, u32 tile, Shape shape, u32 packed, u8* widths, u32* starts) {
    const u32 lane = threadIdx.x % WARP;
    const u32 own = starts_of(packed, starts + 4 * lane);
    const u32 first = tile * TILE + 4 * lane;
    if (first + 4 <= shape.blocks)
        *reinterpret_cast<u32*>(widths + first) = packed;
    else
        for (u32 i = 0; first + i < shape.blocks; ++i) widths[first + i] = static_cast<u8>(packed >> (8 * i));
    const u32 before = words_before(tiles, tile, own);
    if (lane == 0 && tile == gridDim.x - 1) tiles->words = before + own;
    return before;
}

}  // namespace lam::encoding

// rows (N, D) float32; widths: a byte a block, at a multiple of 4; words: room for 32 a block; tiles: zeros.
extern "C" __global__ void __launch_bounds__(lam::encoding::THREADS)
lam_codec_encode(const float* rows, lam::u64 dimension, lam::u32 blocks, lam::u32 blocks_per_row, bool vector,
                 float step, float inverse, float tolerance, lam::u8* widths, lam::u32* words, lam::Tiles* tiles) {
    using namespace lam;
    using namespace lam::encoding;
    const Shape shape = {dimension, blocks, blocks_per_row, vector};
    const Bound bound = {step, inverse, tolerance};
    __shared__ u32 tile;
    __shared__ u32 before;
    __shared__ u32 packed[TILE / 4];
    __shared__ u32 starts[TILE];
    if (threadIdx.x == 0) tile = atomicAdd(&tiles->drawn, 1u);
    __syncthreads();
    const u32 first = threadIdx.x / WARP * BLOCKS_OF_WARP + threadIdx.x % WARP / LANES;
    float values[ROUNDS][OF_LANE];
#pragma unroll
    for (u32 round = 0; round < ROUNDS; ++round) {  // all accesses are under way before the first value is used
        const u32 block = tile * TILE + first + round * (WARP / LANES);
        load(rows, shape, place_of(shape, block, threadIdx.x % LANES), values[round]);
    }
    Held held[ROUNDS];
#pragma unroll
    for (u32 round = 0; round < ROUNDS; ++round) {
        held[round] = quantised(values[round], bound);
        if (threadIdx.x % LANES == 0)
            reinterpret_cast<u8*>(packed)[first + round * (WARP / LANES)] = static_cast<u8>(held[round].width);
    }
    __syncthreads();
    if (threadIdx.x < WARP) {
        const u32 found = placed(tiles, tile, shape, packed[threadIdx.x], widths, starts);
        if (threadIdx.x == 0) before = found;
    }
    __syncthreads();
#pragma unroll
    for (u32 round = 0; round < ROUNDS; ++round)
        write_block(held[round], words + before + starts[first + round * (WARP / LANES)]);
}
