"""Which earlier row of its group a row is predicted from, and by how much of it. Integers throughout, so that what is
chosen, and what is predicted, is the same on every machine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lam_vllm.codec.bounded import MOST_QUANTUM, Quanta
from lam_vllm.codec.error import CodecError

MOST_ROWS = 256
"""Of a group: one byte names a parent."""
MOST_DEPTH = 4
PARENT_BITS = 16
"""What naming a parent and its scale takes."""

_SCALE_BITS = 4
_MOST_SCALE = 127
_EXACT_FP32, _EXACT_FP64 = 2**24, 2**53
_WORTH = 22.2
"""A gain g of an energy E saves D/2 log2(E / (E - g)) bits, about D g / (2 ln 2 E): `PARENT_BITS` at g = 22.2 E / D."""
_EARLIER = np.tri(MOST_ROWS, k=-1, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Parents:
    """Of each row the index of its parent, and its scale in sixteenths; a row of scale 0 has none. (N,) int64 each."""

    rows: NDArray[np.int64]
    scales: NDArray[np.int64]


def choose(quanta: Quanta) -> Parents:
    """The parents of (N, D) rows, N at most 256: the earlier row with the largest <q,p>^2 / <p,p>, if it saves bits.

    No row is more than four steps from a root.
    """
    gram = _gram(quanta)
    if gram is None or len(quanta) < 2:
        return Parents(np.zeros(len(quanta), np.int64), np.zeros(len(quanta), np.int64))
    energy = np.maximum(np.diagonal(gram), 1).astype(np.float64)
    gains = (gram * _EARLIER[: len(gram), : len(gram)]).astype(np.float64)
    gains *= gains
    gains /= energy
    rows = _shallow(gains, _WORTH / quanta.shape[1] * energy)
    every = np.arange(len(rows))
    rows = np.where(rows < 0, every, rows)
    scales = np.rint(2**_SCALE_BITS * gram[every, rows].astype(np.float64) / energy[rows])
    scales = np.clip(scales, -_MOST_SCALE, _MOST_SCALE).astype(np.int64)
    return Parents(rows, np.where(rows == every, 0, scales))


def residuals(quanta: Quanta, parents: Parents) -> Quanta:
    """What the parents do not predict: (N, D) int32."""
    predicted = _predicted(quanta, parents.rows, parents.scales)
    return np.subtract(quanta, predicted, out=predicted)


def resolve(residuals: Quanta, parents: Parents) -> None:
    """Turns residuals (N, D) in place into the quanta of which they are residuals.

    Raises:
        CodecError: a parent does not stand before its row, or more than four steps lie between a row and its root.
        CodecError: a quantum is larger than any that is encoded.
    """
    waiting = np.flatnonzero(parents.scales)
    if (parents.rows[waiting] >= waiting).any():
        raise CodecError("parent", "a row that comes later", "an earlier row of the group")
    is_waiting = parents.scales != 0
    _check_range(residuals[~is_waiting])
    for _ in range(MOST_DEPTH):
        ready = waiting[~is_waiting[parents.rows[waiting]]]
        residuals[ready] += _predicted(residuals, parents.rows[ready], parents.scales[ready])
        _check_range(residuals[ready])
        is_waiting[ready] = False
        waiting = np.flatnonzero(is_waiting)
    if len(waiting):
        raise CodecError("parent", f"more than {MOST_DEPTH} steps to the root", f"at most {MOST_DEPTH}")


def _gram(quanta: Quanta) -> NDArray[np.float32] | NDArray[np.float64] | None:
    """All inner products, exact; None where no float holds them."""
    largest = int(np.abs(quanta).max(initial=0))
    most = largest * largest * quanta.shape[1]  # no partial sum of a product of two rows is larger
    if most >= _EXACT_FP64:
        return None
    if most >= _EXACT_FP32:
        wide = quanta.astype(np.float64)
        return wide @ wide.T
    narrow = quanta.astype(np.float32)
    return narrow @ narrow.T


def _shallow(gains: NDArray[np.float64], worth: NDArray[np.float64]) -> NDArray[np.int64]:
    """The parent of each row, or -1."""
    best = gains.argmax(axis=1)
    parents, gained = best.tolist(), gains[np.arange(len(gains)), best].tolist()
    depths = [0] * len(gains)
    is_open, of_open = np.ones(len(gains)), np.empty(len(gains))
    for row, enough in enumerate(worth.tolist()):
        parent, gain = parents[row], gained[row]
        if depths[parent] == MOST_DEPTH:
            parent = int(np.multiply(gains[row], is_open, out=of_open).argmax())
            gain = of_open[parent]
        if gain <= enough:
            parents[row] = -1
            continue
        parents[row], depths[row] = parent, depths[parent] + 1
        if depths[row] == MOST_DEPTH:
            is_open[row] = 0
    return np.array(parents, np.int64)


def _predicted(quanta: Quanta, rows: NDArray[np.int64], scales: NDArray[np.int64]) -> Quanta:
    predicted = quanta[rows]
    predicted *= scales.astype(np.int32)[:, None]
    predicted += 1 << (_SCALE_BITS - 1)
    predicted >>= _SCALE_BITS
    return predicted


def _check_range(quanta: Quanta) -> None:
    if quanta.size and not -MOST_QUANTUM <= quanta.min() <= quanta.max() <= MOST_QUANTUM:
        raise CodecError("quantum", f"{quanta.min()} to {quanta.max()}", f"-{MOST_QUANTUM} to {MOST_QUANTUM}")
