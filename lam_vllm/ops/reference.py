"""The definition of each array operation, in numpy: slow enough to read, and the oracle of every faster path."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LANES = 32


def l2_distances(rows: NDArray[np.float32], query: NDArray[np.float32]) -> NDArray[np.float64]:
    """l2 distance of each row to the query: (N, D) float32 and (D,) float32 give (N,) float64.

    The same inputs give the same bits on every machine. Element d of the float64 squares is added to lane d mod 32,
    in ascending d; the lanes are then folded in halves (lane i takes lane i + 16, then i + 8, ... i + 1).

    Raises:
        ValueError: `rows` is not a float32 matrix.
        ValueError: `query` is not a float32 vector.
        ValueError: the two differ in D.
    """
    _check("rows", rows, 2)
    _check("query", query, 1)
    count, dimension = rows.shape
    if query.shape[0] != dimension:
        raise ValueError(f"query: dimension {query.shape[0]} is not allowed; allowed: {dimension}, that of rows")
    steps = -(-dimension // LANES)
    squares = np.zeros((count, steps * LANES), dtype=np.float64)
    squares[:, :dimension] = np.square(rows.astype(np.float64) - query.astype(np.float64))
    lanes = np.zeros((count, LANES), dtype=np.float64)
    for step in range(steps):  # np.sum would add pairwise, in an order that depends on the memory layout
        lanes += squares[:, step * LANES : (step + 1) * LANES]
    while (half := lanes.shape[1] // 2) > 0:
        lanes = lanes[:, :half] + lanes[:, half:]
    return np.sqrt(lanes[:, 0])


def _check(name: str, array: object, axes: int) -> None:
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{name}: {type(array).__name__} is not allowed; allowed: a numpy array")
    if array.ndim != axes or array.dtype != np.float32:
        given = f"shape {array.shape} of {array.dtype}"
        raise ValueError(f"{name}: {given} is not allowed; allowed: {axes} axes of float32")
