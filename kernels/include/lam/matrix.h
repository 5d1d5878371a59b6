// A matrix as blocks of 32 values of one row, the last block of a row filled up with zeros. Device only.
#pragma once
#include "planes.h"

namespace lam {

// `dimension` values a row. The launcher gives a matrix whose rows are whole blocks as one long row, which saves the
// division. `vector`: four neighbouring values lie within one row, at a multiple of 16 bytes.
struct Shape {
    u64 dimension;
    u32 blocks, blocks_per_row;
    bool vector;
};

struct Place {
    u64 first;     // element of the matrix
    u32 count;     // values there, the rest of OF_LANE being filling
};

__device__ __forceinline__ Place place_of(Shape shape, u32 block, u32 lane) {
    if (block >= shape.blocks) return {0, 0};
    const u32 row = shape.blocks_per_row == shape.blocks ? 0 : block / shape.blocks_per_row;
    const u64 column = static_cast<u64>(block - row * shape.blocks_per_row) * BLOCK + lane * OF_LANE;
    const u64 left = column < shape.dimension ? shape.dimension - column : 0;
    return {row * shape.dimension + column, left < OF_LANE ? static_cast<u32>(left) : OF_LANE};
}

__device__ __forceinline__ void load(const float* rows, Shape shape, Place place, float values[OF_LANE]) {
    if (shape.vector && place.count == OF_LANE) {
        const float4 four = *reinterpret_cast<const float4*>(rows + place.first);
        values[0] = four.x, values[1] = four.y, values[2] = four.z, values[3] = four.w;
        return;
    }
    for (u32 e = 0; e < OF_LANE; ++e) values[e] = e < place.count ? rows[place.first + e] : 0.0f;
}

__device__ __forceinline__ void store(float* rows, Shape shape, Place place, const float values[OF_LANE]) {
    if (shape.vector && place.count == OF_LANE) {
        *reinterpret_cast<float4*>(rows + place.first) = make_float4(values[0], values[1], values[2], values[3]);
        return;
    }
    for (u32 e = 0; e < OF_LANE; ++e)
        if (e < place.count) rows[place.first + e] = values[e];
}

}  // namespace lam
