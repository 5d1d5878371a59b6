"""A search that misses nothing and reads little of most rows: by Cauchy and Schwarz, from their main coordinates."""

from __future__ import annotations

from copy import copy
from functools import partial

import numpy as np
from numpy.typing import NDArray

from lam_vllm.search.growing import DerivedRows
from lam_vllm.search.ruled_out import close_ones, margin
from lam_vllm.types import Candidate, Embedding

PREFIXES = (16, 64)
"""Coordinates that are looked at first, and next of the rows that are left. A basis has as many as the last."""


class PrunedSearch:
    """A `Search` in stages. A stage holds, of each row, its first coordinates in a basis and the length of the rest.

    Cauchy and Schwarz: x.y = Px.Py + Qx.Qy <= Px.Py + |Qx||Qy| for orthonormal P and what is left, Q. So the product of
    what a stage holds of x and of y is never below their cosine, whatever the basis, and what it puts clearly below the
    threshold is. A good basis makes the rest short. Keeps 328 bytes of every row at the usual stages, up to twice that
    while growing, and reads 68 of most.
    """

    complete = True

    def __init__(self, basis: NDArray[np.float64]) -> None:
        """`basis` is (K, D) with orthonormal rows, as `read_basis` gives one."""
        heads = sorted({min(prefix, len(basis)) for prefix in PREFIXES})
        self._derive = [partial(_reduced, basis=basis[:head]) for head in heads]
        self._stages = [
            DerivedRows(head + 1, np.float32, derive) for head, derive in zip(heads, self._derive, strict=True)
        ]

    @property
    def nbytes(self) -> int:
        """Bytes of what the stages hold."""
        return sum(stage.nbytes for stage in self._stages)

    def left(
        self, rows: Embedding, eligible: NDArray[np.bool_], query: Embedding, threshold_cos: float
    ) -> NDArray[np.intp]:
        """Ascending indices of the eligible rows that no stage rules out: those that are looked at whole."""
        least = threshold_cos - margin(query.shape[0])
        places = np.flatnonzero(eligible)
        for stage, derive in zip(self._stages, self._derive, strict=True):
            known, (sought,) = stage.of(rows), derive(query[None])
            if len(places) == len(known):
                places = np.flatnonzero(known @ sought >= least)
            else:
                places = places[known[places] @ sought >= least]
        return places

    def propose(
        self, rows: Embedding, eligible: NDArray[np.bool_], query: Embedding, threshold_cos: float
    ) -> list[Candidate]:
        """See `Search`. Complete as `ExhaustiveSearch` is."""
        return close_ones(rows, self.left(rows, eligible, query, threshold_cos), query, threshold_cos)

    def fork(self, count: int) -> PrunedSearch:
        """See `Search`; what the stages hold is copied."""
        other = copy(self)
        other._stages = [stage.fork(count) for stage in self._stages]
        return other


def _reduced(rows: NDArray[np.float32], basis: NDArray[np.float64]) -> NDArray[np.float32]:
    """(n, K + 1): each row's coordinates in the (K, D) basis and the length of the rest, rounded to float32 once.

    That and the product of two such rows err by less than K + 5 units of 2^-24, a tenth of the margin.
    """
    exact = rows.astype(np.float64)
    head = exact @ basis.T
    rest = np.einsum("nd,nd->n", exact, exact) - np.einsum("nk,nk->n", head, head)
    return np.column_stack([head, np.sqrt(np.maximum(rest, 0.0))]).astype(np.float32)
