"""A matrix to which rows are only ever added."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

_Scalar = TypeVar("_Scalar", bound=np.generic)

CHUNK = 4096
"""Rows derived at a time, which bounds what deriving takes besides its result."""


class DerivedRows(Generic[_Scalar]):
    """`derive(row)` for each row of a growing matrix, made once: (N, width), in a buffer that at least doubles."""

    def __init__(self, width: int, dtype: DTypeLike, derive: Callable[[NDArray[np.float32]], NDArray[_Scalar]]) -> None:
        """`derive` takes (n, D) float32 and gives (n, width) of `dtype`, each row a function of its row alone."""
        self._derive = derive
        self._rows: NDArray[_Scalar] = np.empty((0, width), dtype=dtype)
        self._count = 0

    @property
    def nbytes(self) -> int:
        """Bytes held: the buffer at its capacity."""
        return self._rows.nbytes

    def of(self, rows: NDArray[np.float32]) -> NDArray[_Scalar]:
        """(N, width): what is derived of the (N, D) rows, the first of which are those of the last call.

        Raises:
            ValueError: there are fewer rows than before.
        """
        count = len(rows)
        if count < self._count:
            raise ValueError(f"rows: {count} are not allowed; allowed: at least {self._count}, which were seen")
        if count > len(self._rows):
            self._resize(max(count, 2 * len(self._rows)))
        while self._count < count:
            stop = min(count, self._count + CHUNK)
            self._rows[self._count : stop] = self._derive(rows[self._count : stop])
            self._count = stop
        return self._rows[:count]

    def fork(self, count: int) -> DerivedRows[_Scalar]:
        """An independent copy of what is known of the first `count` rows."""
        other = DerivedRows(self._rows.shape[1], self._rows.dtype, self._derive)
        other._count = min(count, self._count)
        other._rows = self._rows[: other._count].copy()
        return other

    def _resize(self, capacity: int) -> None:
        larger = np.empty((capacity, self._rows.shape[1]), dtype=self._rows.dtype)
        larger[: self._count] = self._rows[: self._count]
        self._rows = larger
