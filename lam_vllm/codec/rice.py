"""Rice codes of whole rows: the lowest k bits of a number stand in bit planes, what is above them in unary."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lam_vllm.codec.error import CodecError
from lam_vllm.codec.planes import Numbers

MOST_K = 27
MOST_BITS = 28
"""Of a number: a quantum is below 2^22 and so is eight times one, which is the most that a parent predicts."""


def cheapest(numbers: Numbers, plane_bits: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The k of each row of (N, D), and the bits of the row with it; a plane takes `plane_bits`."""
    more_than_mean = 4 * numbers.sum(axis=1, dtype=np.int64) // (3 * numbers.shape[1])
    low = np.maximum(_bit_length(more_than_mean) - 2, 0)  # of embeddings' residuals the best k is this or the next
    bits, next_bits = _bits(numbers, low, plane_bits), _bits(numbers, low + 1, plane_bits)
    k: NDArray[np.int64] = low + (next_bits < bits)
    return k.astype(np.uint8), np.minimum(bits, next_bits)


def unary(quotients: NDArray[np.uint32]) -> bytes:
    """Of each number in turn as many zeros and a one, the first bit lowest in its byte."""
    if not quotients.size:
        return b""
    ends = quotients.reshape(-1).astype(np.intp)
    ends[1:] += 1
    np.cumsum(ends, out=ends)
    bits = np.zeros(ends[-1] + 1, np.uint8)
    bits[ends] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def quotients_of(coded: memoryview, count: int) -> NDArray[np.uint32]:
    """The (count,) numbers that `unary` wrote.

    Raises:
        CodecError: there are more or fewer, or bytes behind the last one.
    """
    bits = np.unpackbits(np.frombuffer(coded, np.uint8), bitorder="little").view(np.bool_)
    found = int(np.count_nonzero(bits))
    if found != count:
        raise CodecError("unary", f"{found} numbers", f"{count}")
    ends = np.flatnonzero(bits)
    if len(bits) - (int(ends[-1]) + 1 if count else 0) > 7:
        raise CodecError("unary", f"{len(coded)} bytes", "those up to the last number")
    return (np.diff(ends, prepend=-1) - 1).astype(np.uint32)


def _bits(numbers: Numbers, k: NDArray[np.int64], plane_bits: int) -> NDArray[np.int64]:
    above = (numbers >> k.astype(np.uint32)[:, None]).sum(axis=1, dtype=np.int64)
    bits: NDArray[np.int64] = above + numbers.shape[1] + k * plane_bits
    return bits


def _bit_length(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    exponents: NDArray[np.int32] = np.frexp(numbers.astype(np.float64))[1]
    return exponents.astype(np.int64)
