"""The layout that a GPU writes too: a width byte a block, then each block's bit planes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lam_vllm.codec.bounded import Values, quantise, reconstruct
from lam_vllm.codec.error import CodecError
from lam_vllm.codec.padding import blocks_a_row, padded, unpadded
from lam_vllm.codec.planes import (
    BLOCK,
    Counts,
    Words,
    kept_planes,
    numbers_of,
    planes_of,
    spread,
    unzigzag,
    widths_of,
    zigzag,
)

ESCAPED = 255
MOST_WIDTH = 24
_ALIGNMENT = 4
_CHUNK_BLOCKS = 3072
"""256 rows of 384: what is at work stays in the cache of one core."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """A matrix in blocks of 32 values of one row: `widths` (N, blocks a row) uint8, `words` (W,) uint32.

    A block of width w below 25 has w words, its bit planes; one of width 255 has 32, the bits of its values as they
    are, because at least one of them would not keep the bound. Words follow one another in the order of the blocks.
    """

    widths: Counts
    words: Words


def encode_blocks(rows: Values, eps: float) -> Blocks:
    """The blocks of a (N, D) float32 matrix, which hold every value within eps, or as it is."""
    values = padded(rows)
    widths = np.empty(len(values), np.uint8)
    words = []
    for start in range(0, len(values), _CHUNK_BLOCKS):
        chunk = values[start : start + _CHUNK_BLOCKS]
        widths[start : start + _CHUNK_BLOCKS], packed = _packed(chunk, eps)
        words.append(packed)
    joined = np.concatenate(words) if words else np.empty(0, np.uint32)
    return Blocks(widths.reshape(len(rows), blocks_a_row(rows.shape[1])), joined)


def decode_blocks(blocks: Blocks, dimension: int, eps: float) -> Values:
    """The (N, D) float32 matrix of these blocks.

    Raises:
        CodecError: a width is neither 255 nor at most 24.
        CodecError: there are more or fewer words than the widths say.
    """
    widths = blocks.widths.reshape(-1)
    counts = counts_of(widths)
    needed = int(counts.sum(dtype=np.int64))
    if len(blocks.words) != needed:
        raise CodecError("words", len(blocks.words), f"{needed}, as the widths say")
    values = np.empty((len(widths), BLOCK), np.float32)
    edges = [*range(0, len(widths), _CHUNK_BLOCKS), len(widths)]
    first = 0
    for start, end in pairwise(edges):
        last = first + int(counts[start:end].sum(dtype=np.int64))
        planes = spread(blocks.words[first:last], counts[start:end])
        escaped = widths[start:end] == ESCAPED
        quanta = unzigzag(numbers_of(planes))
        quanta[escaped] = 0  # their words are no planes, and what they would give may overflow
        values[start:end] = reconstruct(quanta, eps)
        restore(values[start:end], planes, escaped)
        first = last
    return unpadded(values, len(blocks.widths), dimension)


def counts_of(widths: Counts) -> Counts:
    """Words of each block, of the same shape.

    Raises:
        CodecError: a width is neither 255 nor at most 24.
    """
    escaped = widths == ESCAPED
    strange = widths[(widths > MOST_WIDTH) & ~escaped]
    if len(strange):
        raise CodecError("width", strange[0], f"0 to {MOST_WIDTH}, or {ESCAPED}")
    return np.where(escaped, np.uint8(BLOCK), widths)


def restore(values: Values, planes: Words, is_escaped: NDArray[np.bool_]) -> None:
    """Puts into the escaped of these blocks (B, 32) the values that their words (B, P) are."""
    if is_escaped.any():
        values[is_escaped] = planes[is_escaped].view(np.float32)


def fixed_body(rows: Values, eps: float) -> bytes:
    """The blocks of a matrix as bytes: all widths by row, zeros up to a multiple of 4, then all words."""
    return body_of(encode_blocks(rows, eps))


def body_of(blocks: Blocks) -> bytes:
    """The same of blocks that are there already, from a device for one."""
    widths = blocks.widths.tobytes()
    return widths + bytes(-len(widths) % _ALIGNMENT) + blocks.words.astype("<u4", copy=False).tobytes()


def fixed_rows(body: memoryview, count: int, dimension: int, eps: float) -> Values:
    """The (N, D) float32 matrix of a body.

    Raises:
        CodecError: the body is too short for the widths, or its words are not those that the widths say.
    """
    needed = count * blocks_a_row(dimension)
    start = needed + -needed % _ALIGNMENT
    if len(body) < start or (len(body) - start) % 4:
        raise CodecError("body", f"{len(body)} bytes", f"{start} and whole words, as {needed} blocks need")
    widths = np.frombuffer(body[:needed], np.uint8).reshape(count, blocks_a_row(dimension))
    words = np.frombuffer(bytes(body[start:]), "<u4").astype(np.uint32, copy=False)
    return decode_blocks(Blocks(widths, words), dimension, eps)


def _packed(values: Values, eps: float) -> tuple[Counts, NDArray[np.uint32]]:
    found = quantise(values, eps)
    numbers = zigzag(found.quanta)
    widths = widths_of(numbers)
    escaped = found.escaped()
    widths[escaped] = ESCAPED
    counts = counts_of(widths)
    planes = planes_of(numbers, int(counts.max(initial=0)))
    if escaped.any():
        planes[escaped] = values[escaped].view(np.uint32)
    return widths, planes[kept_planes(counts)]
