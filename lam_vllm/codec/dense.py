"""The small layout: groups of at most 256 rows, each with its length before it."""

from __future__ import annotations

import numpy as np

from lam_vllm.codec.bounded import Values
from lam_vllm.codec.cursor import Cursor
from lam_vllm.codec.error import CodecError
from lam_vllm.codec.group import read_group, write_group
from lam_vllm.codec.padding import blocks_a_row, unpadded
from lam_vllm.codec.parents import MOST_ROWS
from lam_vllm.codec.planes import BLOCK


def dense_body(rows: Values, eps: float) -> bytes:
    """The groups of a (N, D) float32 matrix, and the length of each as a little-endian u32 before it."""
    groups = [write_group(rows[start : start + MOST_ROWS], eps) for start in range(0, len(rows), MOST_ROWS)]
    return b"".join(part for group in groups for part in (len(group).to_bytes(4, "little"), group))


def dense_rows(body: memoryview, count: int, dimension: int, eps: float) -> Values:
    """The (N, D) float32 matrix of a body.

    Raises:
        CodecError: the body cannot be that of so many values, or says of a group what no group is.
    """
    blocks = blocks_a_row(dimension)
    least = count + count * dimension // BLOCK  # a head a row, and a bit a value or a byte a block
    if len(body) < least:
        raise CodecError("body", f"{len(body)} bytes", f"at least {least} for {count} rows")
    values = np.empty((count, blocks * BLOCK), np.float32)
    groups = Cursor(body)
    for start in range(0, count, MOST_ROWS):
        (length,) = groups.array("length", 1, "<u4")
        part = values[start : start + MOST_ROWS]
        part[:] = read_group(groups.take("group", int(length)), len(part), dimension, eps)
    groups.end()
    return unpadded(values, count, dimension)
