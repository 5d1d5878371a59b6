"""What a search is."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lam_vllm.types import Candidate, Embedding


class Search(Protocol):
    """Proposes; it may propose too many rows, and decides nothing.

    A search may keep what it derives from the rows it has seen, so one belongs to one matrix, to which rows are only
    ever added. What it proposes is a function of the rows and the query alone, however the rows arrived.
    """

    @property
    def complete(self) -> bool:
        """Whether no row within the radius is ever left out.

        What an incomplete search leaves out hangs on single bits: it is only given canonical embeddings.
        """

    @property
    def nbytes(self) -> int:
        """Bytes held besides the rows."""

    def propose(
        self, rows: Embedding, eligible: NDArray[np.bool_], query: Embedding, threshold_cos: float
    ) -> list[Candidate]:
        """Eligible rows that may have a cosine of at least `threshold_cos` with the query, by ascending index.

        `rows` is (N, D) and `query` (D,), float32 of unit length; `eligible` is (N,) bool.
        """

    def fork(self, count: int) -> Search:
        """The same search for a matrix that begins with the first `count` rows of this one's."""
