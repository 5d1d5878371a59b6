"""The search that misses nothing: every retained row is looked at."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lam_vllm.search.ruled_out import margin
from lam_vllm.types import Candidate, Embedding


class ExhaustiveSearch:
    """A `Search` by one fp32 matrix-vector product, which rules out what lies clearly below the threshold."""

    complete = True
    nbytes = 0

    def propose(
        self, rows: Embedding, eligible: NDArray[np.bool_], query: Embedding, threshold_cos: float
    ) -> list[Candidate]:
        """See `Search`. Complete: no eligible row within the radius, or within 1e-5 of it, is left out."""
        possible = eligible & (rows @ query >= threshold_cos - margin(query.shape[0]))
        return [Candidate(int(index)) for index in np.flatnonzero(possible)]

    def fork(self, count: int) -> ExhaustiveSearch:  # noqa: ARG002 - nothing is kept of any row
        """See `Search`: this one, since it keeps nothing."""
        return self
