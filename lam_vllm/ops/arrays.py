"""Where array operations run. Every device gives the same bits, so that who calls need not know which one it is."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lam_vllm.ops import reference

Rows = NDArray[np.float32]


class Arrays(Protocol):
    """The operations of one device: numpy arrays in and out, results and errors as those of `ops.reference`."""

    def alone(self, rows: Rows, place: int) -> Rows:
        """(D,) copy of one of (N, D) rows, which keeps nothing of the others."""

    def l2_distances(self, rows: Rows, query: Rows) -> NDArray[np.float64]:
        """(N,) float64; see `reference.l2_distances`."""

    def band_digests(self, rows: Rows, eps: float, width: int) -> NDArray[np.uint64]:
        """(N, ceil(D / width)) uint64; see `reference.band_digests`."""


class HostArrays:
    """`Arrays` by numpy on the CPU: the definition."""

    l2_distances = staticmethod(reference.l2_distances)
    band_digests = staticmethod(reference.band_digests)

    def alone(self, rows: Rows, place: int) -> Rows:
        """A copy of one row; see `Arrays`."""
        row: Rows = rows[place].copy()
        return row


HOST: Arrays = HostArrays()
"""What is used where no device was chosen."""
