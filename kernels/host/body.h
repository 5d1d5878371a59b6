// The body of a stream of mode "fixed" on a CPU: all width bytes by row, filled up to 4 bytes, then all words.
// Little-endian machines only, as CUDA's are.
#pragma once
#include <array>
#include <cstddef>

#include "lam/block.h"

namespace lam {

using Planes = std::array<u32, BLOCK>;  // words of a block
using Values = std::array<float, BLOCK>;

struct Matrix {
    size_t rows;
    u32 dimension;
    size_t blocks_of_row() const { return (size_t{dimension} + BLOCK - 1) / BLOCK; }
    size_t blocks() const { return rows * blocks_of_row(); }
    size_t width_bytes() const { return (blocks() + 3) / 4 * 4; }
    u32 filled(size_t block) const {  // values of a block that are of the matrix
        const size_t column = block % blocks_of_row() * BLOCK;
        return dimension - column < BLOCK ? static_cast<u32>(dimension - column) : BLOCK;
    }
    size_t first(size_t block) const { return block / blocks_of_row() * dimension + block % blocks_of_row() * BLOCK; }
};

enum class Fault { none = 0, too_short = 1, strange_width = 2, other_length = 3 };

// The eight lanes of a warp that share a block, one after the other.
inline void turn(std::array<u32, LANES>& shares) {
    for (u32 distance = LANES / 2; distance > 0; distance /= 2) {
        const std::array<u32, LANES> before = shares;
        for (u32 lane = 0; lane < LANES; ++lane)
            shares[lane] = exchanged(before[lane], before[lane ^ distance], lane, distance);
    }
}

inline u32 encode_block(const Values& values, Bound bound, Planes& words) {
    std::array<std::array<u32, OF_LANE>, LANES> numbers{};
    u32 used = 0;
    for (u32 lane = 0; lane < LANES; ++lane)
        used |= quantise_lane(&values[lane * OF_LANE], bound, numbers[lane].data());
    const u32 width = width_of(used);
    if (width == ESCAPED) {
        for (u32 i = 0; i < BLOCK; ++i) words[i] = bits_of(values[i]);
        return width;
    }
    for (u32 octet = 0; octet * OCTET < width; ++octet) {
        std::array<u32, LANES> shares{};
        for (u32 lane = 0; lane < LANES; ++lane) shares[lane] = share_of(numbers[lane].data(), octet);
        turn(shares);
        for (u32 lane = 0; lane < LANES; ++lane) words[octet * OCTET + lane] = shares[lane];
    }
    return width;
}

// `words` holds what there is, zeros behind it.
inline void decode_block(const Planes& words, u32 width, float step, Values& values) {
    std::array<std::array<u32, OF_LANE>, LANES> numbers{};
    for (u32 octet = 0; width != ESCAPED && octet * OCTET < width; ++octet) {
        std::array<u32, LANES> shares{};
        for (u32 lane = 0; lane < LANES; ++lane) shares[lane] = words[octet * OCTET + lane];
        turn(shares);
        for (u32 lane = 0; lane < LANES; ++lane) take_share(shares[lane], octet, numbers[lane].data());
    }
    for (u32 i = 0; i < BLOCK; ++i)
        values[i] = value_of(width == ESCAPED ? words[i] : numbers[i / OF_LANE][i % OF_LANE], width, step);
}

// Writes at most 129 bytes a block and 3 to `body`; returns how many.
inline size_t encode_body(const float* rows, Matrix matrix, Bound bound, u8* body) {
    for (size_t filling = matrix.blocks(); filling < matrix.width_bytes(); ++filling) body[filling] = 0;
    u8* at = body + matrix.width_bytes();
    for (size_t block = 0; block < matrix.blocks(); ++block) {
        Values values{};
        memcpy(values.data(), rows + matrix.first(block), matrix.filled(block) * sizeof(float));
        Planes words{};
        const u32 width = encode_block(values, bound, words);
        body[block] = static_cast<u8>(width);
        memcpy(at, words.data(), words_of(width) * sizeof(u32));
        at += words_of(width) * sizeof(u32);
    }
    return static_cast<size_t>(at - body);
}

// What of a body is not allowed, before anything is written for it.
inline Fault fault_of(const u8* body, size_t size, Matrix matrix) {
    if (size < matrix.width_bytes()) return Fault::too_short;
    size_t words = 0;
    for (size_t block = 0; block < matrix.blocks(); ++block) {
        if (!is_width(body[block])) return Fault::strange_width;
        words += words_of(body[block]);
    }
    return size - matrix.width_bytes() == words * sizeof(u32) ? Fault::none : Fault::other_length;
}

// Bytes that anyone wrote: reads `size` of them at most, writes rows x dimension values or, on a fault, none.
inline Fault decode_body(const u8* body, size_t size, Matrix matrix, float step, float* rows) {
    if (const Fault fault = fault_of(body, size, matrix); fault != Fault::none) return fault;
    const u8* at = body + matrix.width_bytes();
    for (size_t block = 0; block < matrix.blocks(); ++block) {
        Planes words{};
        Values values;
        memcpy(words.data(), at, words_of(body[block]) * sizeof(u32));
        at += words_of(body[block]) * sizeof(u32);
        decode_block(words, body[block], step, values);
        memcpy(rows + matrix.first(block), values.data(), matrix.filled(block) * sizeof(float));
    }
    return Fault::none;
}

}  // namespace lam
