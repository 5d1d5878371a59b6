// Blocks of 32 numbers as bit planes: word b holds bit b of every number, number i in bit i.
// Eight lanes share a block, four numbers each; a round turns eight planes (an octet), and leaves word j in lane j.
#pragma once
#include "base.h"

namespace lam {

constexpr u32 BLOCK = 32;          // numbers
constexpr u32 LANES = 8;           // that share a block
constexpr u32 OF_LANE = 4;         // numbers of one lane
constexpr u32 OCTET = 8;           // planes of one round

// Signed to unsigned, the small ones small: 0, -1, 1, -2 to 0, 1, 2, 3.
LAM_BOTH u32 zigzag(i32 quantum) {
    return (static_cast<u32>(quantum) << 1) ^ static_cast<u32>(quantum >> 31);
}

LAM_BOTH i32 unzigzag(u32 number) {
    return static_cast<i32>((number >> 1) ^ (0u - (number & 1)));
}

// Exchanges the bits of a word whose places differ by `distance`; `mask` marks the lower of each pair.
LAM_BOTH u32 swapped(u32 word, u32 distance, u32 mask) {
    const u32 differ = (word ^ (word >> distance)) & mask;
    return word ^ differ ^ (differ << distance);
}

// Four bytes to eight nibbles: bit t of byte e becomes bit e of nibble t. Each line swaps two bits of a place's number.
LAM_BOTH u32 nibbles_of(u32 bytes) {
    bytes = swapped(bytes, 12, 0x0000F0F0u);
    bytes = swapped(bytes, 6, 0x00CC00CCu);
    bytes = swapped(bytes, 3, 0x0A0A0A0Au);
    return swapped(bytes, 1, 0x22222222u);
}

// The inverse of `nibbles_of`.
LAM_BOTH u32 bytes_of(u32 nibbles) {
    nibbles = swapped(nibbles, 1, 0x22222222u);
    nibbles = swapped(nibbles, 3, 0x0A0A0A0Au);
    nibbles = swapped(nibbles, 6, 0x00CC00CCu);
    return swapped(nibbles, 12, 0x0000F0F0u);
}

// A lane's share of the eight planes from 8 `octet` on: nibble t belongs to plane 8 octet + t.
LAM_BOTH u32 share_of(const u32 numbers[OF_LANE], u32 octet) {
    u32 bytes = 0;
    for (u32 e = 0; e < OF_LANE; ++e) bytes |= ((numbers[e] >> (OCTET * octet)) & 0xFF) << (8 * e);
    return nibbles_of(bytes);
}

// Puts the bits of such a share into the numbers, which hold zeros there.
LAM_BOTH void take_share(u32 share, u32 octet, u32 numbers[OF_LANE]) {
    const u32 bytes = bytes_of(share);
    for (u32 e = 0; e < OF_LANE; ++e) numbers[e] |= ((bytes >> (8 * e)) & 0xFF) << (OCTET * octet);
}

// One of three steps (distance 4, 2, 1) that turn eight words of eight nibbles in eight lanes: `other` is the word of
// lane ^ distance. After them nibble t of lane j is what nibble j of lane t was. The steps are their own inverse.
LAM_BOTH u32 exchanged(u32 own, u32 other, u32 lane, u32 distance) {
    const u32 lower = distance == 4 ? 0x0000FFFFu : distance == 2 ? 0x00FF00FFu : 0x0F0F0F0Fu;
    return lane & distance ? (own & ~lower) | ((other >> (4 * distance)) & lower)
                           : (own & lower) | ((other << (4 * distance)) & ~lower);
}

}  // namespace lam
