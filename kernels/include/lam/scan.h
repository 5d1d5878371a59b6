// Where each block's words begin: within a tile by a scan of one warp, over the tiles by decoupled look-back, which
// needs one pass over the matrix (Merrill and Garland, 2016). Device only; all 32 lanes of a warp call together.
#pragma once
#include "block.h"

namespace lam {

constexpr u32 ALL = 0xFFFFFFFFu;
constexpr u32 WARP = 32;
constexpr u32 TILE = 128;  // blocks: 4,096 values, 16 KiB of them

// What tiles say of themselves lies in one word each, so that status and number are read together; 0 is "nothing yet".
// The launcher takes no matrix whose words might not fit beside the status.
constexpr u32 OWN = 1u << 30;    // the number is the tile's own words
constexpr u32 SUM = 2u << 30;    // ... those of all tiles up to and with it
constexpr u32 NUMBER = OWN - 1;

// In work memory that is zero before each launch, followed by a state (u32) for each tile. A tile's number is drawn,
// so that all earlier ones are running.
struct Tiles {
    u32 words;       // of the whole matrix, once the last tile is through
    u32 faults;      // what a decoder found that is not allowed
    u32 drawn;
};
static_assert(sizeof(Tiles) == 12, "what lam_vllm/ops/launches.py makes room for");

#ifndef LAM_ON_HOST
__device__ __forceinline__ u32 peek(const u32* state) {
    return *const_cast<const volatile u32*>(state);
}

__device__ __forceinline__ void post(u32* state, u32 value) {
    *const_cast<volatile u32*>(state) = value;
}
#endif

// Words of all earlier tiles; says what the later ones need to know of this one.
__device__ __forceinline__ u32 words_before(Tiles* tiles, u32 tile, u32 own) {
    const u32 lane = threadIdx.x % WARP;
    u32* states = reinterpret_cast<u32*>(tiles + 1);
    if (lane == 0) post(states + tile, (tile == 0 ? SUM : OWN) | own);
    u32 before = 0;
    for (u32 end = tile; end > 0; end = end > WARP ? end - WARP : 0) {  // tiles [end - 32, end), the last in lane 0
        u32 state = SUM;
        if (lane < end) do state = peek(states + end - 1 - lane); while (state == 0);
        const u32 sums = __ballot_sync(ALL, (state & SUM) != 0);
        const u32 last = sums == 0 ? WARP - 1 : __ffs(sums) - 1;
        before += __reduce_add_sync(ALL, lane <= last ? state & NUMBER : 0);
        if (sums != 0) break;
    }
    if (lane == 0 && tile > 0) post(states + tile, SUM | (before + own));
    return before;
}

// Four widths of a tile, in the bytes of `widths`, to where their words begin in the tile; returns the tile's words.
__device__ __forceinline__ u32 starts_of(u32 widths, u32 starts[4]) {
    const u32 lane = threadIdx.x % WARP;
    u32 own = 0;
    for (u32 i = 0; i < 4; ++i) {
        starts[i] = own;
        own += words_of((widths >> (8 * i)) & 0xFF);
    }
    u32 through = own;
#pragma unroll
    for (u32 distance = 1; distance < WARP; distance *= 2) {
        const u32 earlier = __shfl_up_sync(ALL, through, distance);
        if (lane >= distance) through += earlier;
    }
    for (u32 i = 0; i < 4; ++i) starts[i] += through - own;
    return __shfl_sync(ALL, through, WARP - 1);
}

// Turns eight planes of a block among its eight lanes; the steps of `exchanged`.
__device__ __forceinline__ u32 turned(u32 share) {
    const u32 lane = threadIdx.x % LANES;
#pragma unroll
    for (u32 distance = LANES / 2; distance > 0; distance /= 2)
        share = exchanged(share, __shfl_xor_sync(ALL, share, distance), lane, distance);
    return share;
}

}  // namespace lam
