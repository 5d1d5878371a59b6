"""The paper's search: rows of which some band of quantised coordinates equals the query's. It may miss."""

from __future__ import annotations

from copy import copy
from functools import partial
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from lam_vllm.ops.arrays import HOST, Arrays
from lam_vllm.search.growing import CHUNK, DerivedRows
from lam_vllm.search.ruled_out import close_ones
from lam_vllm.types import Candidate, Embedding

EPS_OVER_SIGMA = 0.2
BAND_COORDINATES = 4
"""The paper's setting at t = 0.95. It compares every pair of which a band agrees; which ones do, a digest says."""


class BandedSearch:
    """A `Search` by band digests under Q_eps: consecutive coordinates, quantised in steps of twice eps, make a band.

    sigma, the spread of a coordinate, is that of unit vectors, 1 / sqrt(D): one measured on the rows would make what is
    proposed for a row depend on others. Keeps 8 bytes a band of every row, up to twice that while growing, and reads
    them all for every query, which takes about as long as looking at whole rows, or longer (bench/search.py).
    """

    complete = False

    def __init__(
        self,
        dimension: int,
        band_coordinates: int = BAND_COORDINATES,
        eps_over_sigma: float = EPS_OVER_SIGMA,
        arrays: Arrays = HOST,
    ) -> None:
        self._derive = partial(arrays.band_digests, eps=eps_over_sigma / sqrt(dimension), width=band_coordinates)
        self._digests = DerivedRows(-(-dimension // band_coordinates), np.uint64, self._derive)

    @property
    def nbytes(self) -> int:
        """Bytes of the digests."""
        return self._digests.nbytes

    def agreeing(self, rows: Embedding, query: Embedding) -> NDArray[np.bool_]:
        """(N,) whether some band of each (N, D) row has the query's digest: the pairs that the paper compares.

        Raises:
            ValueError: a coordinate is not finite, or too large to be quantised.
        """
        (sought,) = self._derive(query[None])
        known = self._digests.of(rows)
        agree = np.empty(len(known), np.bool_)
        for start in range(0, len(known), CHUNK):
            np.any(known[start : start + CHUNK] == sought, axis=1, out=agree[start : start + CHUNK])
        return agree

    def propose(
        self, rows: Embedding, eligible: NDArray[np.bool_], query: Embedding, threshold_cos: float
    ) -> list[Candidate]:
        """See `Search`: those that agree in a band, less those that are clearly below the threshold."""
        places = np.flatnonzero(eligible & self.agreeing(rows, query))
        return close_ones(rows, places, query, threshold_cos)

    def fork(self, count: int) -> BandedSearch:
        """See `Search`; the digests are copied."""
        other = copy(self)
        other._digests = self._digests.fork(count)
        return other
