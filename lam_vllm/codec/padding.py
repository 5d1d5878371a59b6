"""Rows filled up with zeros to whole blocks."""

from __future__ import annotations

import numpy as np

from lam_vllm.codec.bounded import Values
from lam_vllm.codec.planes import BLOCK


def blocks_a_row(dimension: int) -> int:
    """Blocks of one row; the last one is filled up with zeros."""
    return -(-dimension // BLOCK)


def padded(rows: Values) -> Values:
    """(N, D) to (N x blocks a row, 32), zeros filled up."""
    count, dimension = rows.shape
    if dimension % BLOCK == 0:
        return np.ascontiguousarray(rows).reshape(-1, BLOCK)
    wide = np.zeros((count, blocks_a_row(dimension) * BLOCK), np.float32)
    wide[:, :dimension] = rows
    return wide.reshape(-1, BLOCK)


def unpadded(values: Values, count: int, dimension: int) -> Values:
    """The inverse of `padded`: (N, D), a matrix of its own."""
    wide = values.reshape(count, blocks_a_row(dimension) * BLOCK)
    return wide if dimension % BLOCK == 0 else np.ascontiguousarray(wide[:, :dimension])
