"""What a search is."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lam_vllm.types import Candidate, Embedding


class Search(Protocol):
    """Proposes; it may propose too many rows, and decides nothing."""

    def propose(
        self, rows: Embedding, eligible: NDArray[np.bool_], query: Embedding, threshold_cos: float
    ) -> list[Candidate]:
        """Eligible rows that may have a cosine of at least `threshold_cos` with the query, by ascending index.

        `rows` is (N, D) and `query` (D,), float32 of unit length; `eligible` is (N,) bool.
        """
