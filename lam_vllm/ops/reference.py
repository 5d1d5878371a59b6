"""The definition of each array operation, in numpy: slow enough to read, and the oracle of every faster path."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LANES = 32
DIGEST_SEED = 0x9E3779B97F4A7C15
QUANTA_LIMIT = 2.0**31


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


def quanta_step(eps: float) -> np.float32:
    """The width of a quantum whose values lie within `eps` of its middle: 2 eps in float32.

    Raises:
        ValueError: `eps` is not a number whose double is a positive, finite float32.
    """
    with np.errstate(over="ignore"):
        step = np.float32(2.0 * eps)
    if not 0 < step < np.inf:
        raise ValueError(f"eps: {eps!r} is not allowed; allowed: a positive number whose double is a finite float32")
    return step


def band_quanta(rows: NDArray[np.float32], eps: float) -> NDArray[np.int32]:
    """Q_eps of each value: (N, D) float32 give (N, D) int32, x / (2 eps) rounded to the nearest, halves to even.

    Values within `eps` of one another get quanta that differ by 1 at most, those of one quantum differ by 2 eps.

    Raises:
        ValueError: `rows` is not a float32 matrix.
        ValueError: `eps` is not a number whose double is a positive, finite float32.
        ValueError: a value is not finite, or 2^31 quanta or more from zero.
    """
    _check("rows", rows, 2)
    step = quanta_step(eps)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        quotients = np.asarray(rows / step)
    if not (np.abs(quotients) < QUANTA_LIMIT).all():  # NaN compares false, so it is caught as well
        row, column = np.argwhere(~(np.abs(quotients) < QUANTA_LIMIT))[0].tolist()
        given = f"{rows[row, column]} at ({row}, {column})"
        raise ValueError(f"rows: {given} is not allowed; allowed: finite values below 2^31 quanta of {step}")
    return np.rint(quotients, out=quotients).astype(np.int32)


def band_digests(rows: NDArray[np.float32], eps: float, width: int) -> NDArray[np.uint64]:
    """A digest of the quanta of each band of `width` coordinates: (N, D) float32 give (N, ceil(D / width)) uint64.

    The last band may be shorter. The band's number is part of what is digested, so that digests of different bands
    differ. Starting from mix(seed ^ band), each quantum is taken in by h = mix(h ^ quantum), as an unsigned 32-bit
    number; mix is the finaliser of splitmix64.

    Raises:
        ValueError: `width` is below 1.
        ValueError: as for `band_quanta`.
    """
    if width < 1:
        raise ValueError(f"width: {width} is not allowed; allowed: at least 1")
    quanta = band_quanta(rows, eps).view(np.uint32)
    bands = -(-quanta.shape[1] // width)
    digests = np.repeat(_mixed(np.arange(bands, dtype=np.uint64) ^ np.uint64(DIGEST_SEED))[None], len(quanta), axis=0)
    for position in range(min(width, quanta.shape[1])):
        taken = quanta[:, position::width]
        digests[:, : taken.shape[1]] = _mixed(digests[:, : taken.shape[1]] ^ taken)
    return digests


def _mixed(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64, modulo 2^64; changes `state` and returns it."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state ^= state >> np.uint64(shift)
        state *= np.uint64(factor)
    state ^= state >> np.uint64(31)
    return state


def _check(name: str, array: object, axes: int) -> None:
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{name}: {type(array).__name__} is not allowed; allowed: a numpy array")
    if array.ndim != axes or array.dtype != np.float32:
        given = f"shape {array.shape} of {array.dtype}"
        raise ValueError(f"{name}: {given} is not allowed; allowed: {axes} axes of float32")
