"""The search that misses nothing: every retained row is looked at."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lam_vllm.types import Candidate, Embedding


class ExhaustiveSearch:
    """A `Search` by one fp32 matrix-vector product, which rules out what lies clearly below the threshold."""

    def propose(
        self, rows: Embedding, eligible: NDArray[np.bool_], query: Embedding, threshold_cos: float
    ) -> list[Candidate]:
        """See `Search`. Complete: no eligible row within the radius, or within 1e-5 of it, is left out."""
        possible = eligible & (rows @ query >= threshold_cos - _margin(query.shape[0]))
        return [Candidate(int(index)) for index in np.flatnonzero(possible)]


def _margin(dimension: int) -> float:
    """How far below t a computed cosine may lie while the pair still matters.

    The fp32 error of a dot product of unit vectors is at most D u in any order of summation, u = 2^-24. A distance of
    radius + 1e-5, which is still counted as a boundary pair, is a cosine of at least t - 1.5e-5.
    """
    return max(5e-5, dimension * 2.0**-24 + 2e-5)
