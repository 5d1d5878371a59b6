"""Blocks of 32 unsigned numbers as bit planes: word b of a block holds bit b of its numbers, number i in bit i.

A CUDA warp makes a plane by one ballot; here 8x8 bits are transposed at a time, in 64-bit words. Words lie
little-endian, one block after the other, each with as many as it counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BLOCK = 32

Numbers = NDArray[np.uint32]
Words = NDArray[np.uint32]
Counts = NDArray[np.uint8]

_SWAPS = ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0x00000000F0F0F0F0))
_PLANES = np.arange(BLOCK, dtype=np.uint8)


def zigzag(quanta: NDArray[np.int32]) -> Numbers:
    """Signed to unsigned, the small ones small: 0, -1, 1, -2 to 0, 1, 2, 3."""
    doubled = quanta << 1
    doubled ^= quanta >> 31
    return doubled.view(np.uint32)


def unzigzag(numbers: Numbers) -> NDArray[np.int32]:
    """The inverse of `zigzag`."""
    half = (numbers >> 1).view(np.int32)
    half ^= -(numbers & 1).view(np.int32)
    return half


def widths_of(numbers: Numbers) -> Counts:
    """Bits that the largest of each block takes: (B, 32) below 2^24 to (B,)."""
    together = np.bitwise_or.reduce(numbers, axis=1).astype(np.float32)  # exact: its exponent is the bit length
    exponents: NDArray[np.int64] = (together.view(np.uint32) >> 23) - np.where(together > 0, 126, 0)
    return exponents.astype(np.uint8)


def planes_of(numbers: Numbers, most: int) -> Words:
    """(B, 32) to (B, P): at least the lowest `most` planes of each block; P is 0, 8, 16, 24 or 32."""
    blocks, octets = len(numbers), -(-most // 8)
    planes = np.empty((blocks, octets, 8, 4), np.uint8)
    for octet in range(octets):
        low = (numbers >> (8 * octet) if octet else numbers).astype(np.uint8)
        planes[:, octet] = _transposed(low.view("<u8")).view(np.uint8).reshape(blocks, 4, 8).transpose(0, 2, 1)
    return planes.reshape(blocks, octets * BLOCK).view("<u4").astype(np.uint32, copy=False)


def kept_planes(counts: Counts) -> NDArray[np.bool_]:
    """(B,) to (B, P): which of the planes that `planes_of` makes a block keeps."""
    return _PLANES[: 8 * -(-int(counts.max(initial=0)) // 8)] < counts[:, None]


def spread(words: Words, counts: Counts) -> Words:
    """(sum of counts,) to (B, P): the words of each block side by side, zeros behind them."""
    kept = kept_planes(counts)
    planes = np.zeros(kept.shape, np.uint32)
    planes[kept] = words
    return planes


def numbers_of(planes: Words) -> Numbers:
    """(B, P), P a multiple of 8, to (B, 32): the numbers whose planes these are."""
    blocks, octets = len(planes), planes.shape[1] // 8
    numbers = np.zeros((blocks, BLOCK), np.uint32)
    bytes_of = planes.astype("<u4", copy=False).view(np.uint8).reshape(blocks, octets, 8, 4)
    for octet in range(octets):
        turned = np.ascontiguousarray(bytes_of[:, octet].transpose(0, 2, 1)).reshape(blocks, BLOCK).view("<u8")
        numbers |= _transposed(turned).view(np.uint8).astype(np.uint32) << (8 * octet)
    return numbers


def _transposed(octets: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Each word's 8x8 bits transposed: bit j of byte i becomes bit i of byte j; little-endian, as bytes are read."""
    for shift, mask in _SWAPS:
        moved = octets >> np.uint64(shift)
        moved ^= octets
        moved &= np.uint64(mask)
        octets = octets ^ moved
        moved <<= np.uint64(shift)
        octets ^= moved
    return octets.astype("<u8", copy=False)
