"""One group of the small layout, rows that may be predicted from one another.

A head a row: k where the row is in Rice codes, plus 128 where it has a parent, or 255 where it is in blocks as in the
layout `fixed`. Then a byte for each parent, its index in the group; a byte for each parent's scale; the widths of the
rows in blocks; the words of all rows, k a block where a row is in Rice codes; and the unary part of those that are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lam_vllm.codec import rice
from lam_vllm.codec.bounded import Values, quantise, reconstruct
from lam_vllm.codec.cursor import Cursor
from lam_vllm.codec.error import CodecError
from lam_vllm.codec.fixed import ESCAPED, counts_of, restore
from lam_vllm.codec.padding import blocks_a_row, padded
from lam_vllm.codec.parents import PARENT_BITS, Parents, choose, residuals, resolve
from lam_vllm.codec.planes import (
    BLOCK,
    Counts,
    Numbers,
    Words,
    kept_planes,
    numbers_of,
    planes_of,
    spread,
    unzigzag,
    widths_of,
    zigzag,
)

_IN_BLOCKS = 255
_HAS_PARENT = 128
_MOST_BLOCK_BYTES = 1 + 4 * BLOCK


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the rows of a group lie: in blocks of `widths` (R, blocks), or in Rice codes with `k` (R,) and a parent."""

    in_blocks: NDArray[np.bool_]
    k: Counts
    parents: Parents
    widths: Counts

    def counts(self) -> Counts:
        """Words of each block, (R x blocks,)."""
        return np.where(self.in_blocks[:, None], counts_of(self.widths), self.k[:, None]).reshape(-1)

    def escaped(self) -> NDArray[np.bool_]:
        """Which blocks hold values as they are, (R x blocks,)."""
        escaped: NDArray[np.bool_] = (self.widths == ESCAPED) & self.in_blocks[:, None]
        return escaped.reshape(-1)


def write_group(rows: Values, eps: float) -> bytes:
    """The group of these rows (R, D), R at most `MOST_ROWS`."""
    count, dimension = rows.shape
    values = padded(rows)
    found = quantise(values, eps)
    escaped = found.escaped()
    if escaped.any():
        found.quanta[escaped] = 0  # a row may be predicted from one of which a block is escaped
    quanta = found.quanta.reshape(count, -1)
    widths = widths_of(zigzag(found.quanta))
    widths[escaped] = ESCAPED
    plan, numbers = _planned(quanta, dimension, widths.reshape(count, -1))
    planes = planes_of(numbers.reshape(-1, BLOCK), int(plan.counts().max(initial=0)))
    if escaped.any():
        planes[escaped] = values[escaped].view(np.uint32)
    return _joined(plan, planes, numbers[:, :dimension])


def read_group(data: memoryview, count: int, dimension: int, eps: float) -> Values:
    """The (R, blocks x 32) float32 values of a group, filled up.

    Raises:
        CodecError: these bytes are no group of so many rows.
    """
    cursor = Cursor(data)
    plan = _plan_of(cursor, count, blocks_a_row(dimension))
    counts = plan.counts()
    words = cursor.array("words", int(counts.sum(dtype=np.int64)), "<u4")
    planes = spread(words, counts)
    numbers = numbers_of(planes).reshape(count, -1)
    _add_quotients(numbers, plan, cursor.rest(), dimension)
    quanta = unzigzag(numbers)
    quanta.reshape(-1, BLOCK)[plan.escaped()] = 0
    resolve(quanta, plan.parents)
    values = reconstruct(quanta, eps)
    restore(values.reshape(-1, BLOCK), planes, plan.escaped())
    return values


def _planned(quanta: NDArray[np.int32], dimension: int, widths: Counts) -> tuple[_Plan, Numbers]:
    """Each row in Rice codes or in blocks, whichever takes fewer bits, and the numbers to write of it."""
    parents = choose(quanta)
    numbers = zigzag(residuals(quanta, parents))
    k, bits = rice.cheapest(numbers[:, :dimension], widths.shape[1] * BLOCK)
    block_bits = 8 * widths.shape[1] + BLOCK * counts_of(widths).sum(axis=1, dtype=np.int64)
    in_blocks = (block_bits <= bits + PARENT_BITS * (parents.scales != 0)) | (widths == ESCAPED).any(axis=1)
    numbers[in_blocks] = zigzag(quanta[in_blocks])
    alone = Parents(parents.rows, np.where(in_blocks, 0, parents.scales))
    return _Plan(in_blocks, k, alone, widths), numbers


def _joined(plan: _Plan, planes: Words, numbers: Numbers) -> bytes:
    has_parent = plan.parents.scales != 0
    heads = np.where(plan.in_blocks, _IN_BLOCKS, plan.k + _HAS_PARENT * has_parent)
    coded = ~plan.in_blocks
    parts = (
        heads.astype(np.uint8),
        plan.parents.rows[has_parent].astype(np.uint8),
        plan.parents.scales[has_parent].astype(np.int8),
        plan.widths[plan.in_blocks],
        planes[kept_planes(plan.counts())].astype("<u4", copy=False),
    )
    above = numbers[coded]
    above >>= plan.k[coded].astype(np.uint32)[:, None]
    return b"".join(part.tobytes() for part in parts) + rice.unary(above)


def _plan_of(cursor: Cursor, count: int, blocks: int) -> _Plan:
    heads = cursor.array("heads", count, "u1")
    in_blocks = heads == _IN_BLOCKS
    has_parent = (heads >= _HAS_PARENT) & ~in_blocks
    k = np.where(in_blocks, 0, heads & (_HAS_PARENT - 1)).astype(np.uint8)
    if (k > rice.MOST_K).any():
        raise CodecError("k", k.max(), f"0 to {rice.MOST_K}")
    rows, scales = np.zeros((2, count), np.int64)
    rows[has_parent] = cursor.array("parents", int(has_parent.sum()), "u1")
    scales[has_parent] = cursor.array("scales", int(has_parent.sum()), "i1")
    widths = np.zeros((count, blocks), np.uint8)
    widths[in_blocks] = cursor.array("widths", int(in_blocks.sum()) * blocks, "u1").reshape(-1, blocks)
    return _Plan(in_blocks, k, Parents(rows, scales), widths)


def _add_quotients(numbers: Numbers, plan: _Plan, coded: memoryview, dimension: int) -> None:
    """Puts the unary part over the lowest bits of the rows in Rice codes."""
    rows = np.flatnonzero(~plan.in_blocks)
    most = len(rows) * plan.widths.shape[1] * _MOST_BLOCK_BYTES
    if len(coded) > most:  # a row that takes more in Rice codes than in blocks is in blocks
        raise CodecError("unary", f"{len(coded)} bytes", f"at most {most} for {len(rows)} rows")
    above = rice.quotients_of(coded, len(rows) * dimension).reshape(len(rows), dimension)
    k = plan.k[rows].astype(np.uint32)[:, None]
    if (above.max(axis=1, initial=0, keepdims=True) >> (rice.MOST_BITS - k)).any():
        raise CodecError("unary", above.max(), f"numbers below 2^{rice.MOST_BITS} over {k.min()} bits")
    numbers[rows, :dimension] |= above << k
