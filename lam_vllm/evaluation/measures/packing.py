"""How far apart windows lie, what the greedy rule keeps of them, and what no rule with the same bound can do without.

Everything stands on one matrix of distances between the windows of one run, so each law holds for any metric. Windows
are *near* when their distance is at most the radius; a *packing* has no two near windows, and a *cover* is a choice of
windows such that every window is near one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import log2
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lam_vllm.errors import OptionError
from lam_vllm.ops.reference import l2_distances
from lam_vllm.types import Embedding

Distances: TypeAlias = NDArray[np.float64]  # (N, N), symmetric


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which window stands for each of N windows: `representative` (N,) int, itself where retained; `distance` (N,)."""

    representative: NDArray[np.intp]
    distance: NDArray[np.float64]

    @property
    def retained(self) -> NDArray[np.bool_]:
        """(N,) whether each window stands for itself."""
        own: NDArray[np.bool_] = self.representative == np.arange(len(self.representative))
        return own

    @property
    def attained(self) -> NDArray[np.float64]:
        """(M,) the distances of the M dropped windows to their representatives."""
        return self.distance[~self.retained]

    @property
    def cluster_sizes(self) -> list[int]:
        """How many windows each retained one stands for, itself among them."""
        return [int(size) for size in np.bincount(self.representative) if size]


@dataclass(frozen=True, slots=True)
class RateBracket:
    """Bits that name a window up to the bound, over one or more runs (the paper, table 23).

    What the shortest such code takes, log2 of the smallest cover, lies between `log2_packing` and `log2_retained`;
    `entropy` is that of the representative of a window drawn at random, `log2_windows` what naming it exactly takes.
    """

    log2_packing: float
    entropy: float
    log2_retained: float
    log2_windows: float


def l2_matrix(rows: Embedding) -> Distances:
    """(N, N) l2 distances of (N, D) embeddings, those of `ops.reference`."""
    return _matrix([l2_distances(rows, row) for row in rows])


def linf_matrix(rows: Embedding) -> Distances:
    """(N, N) largest coordinate difference of each two of (N, D) embeddings, in float64."""
    wide = rows.astype(np.float64)
    return _matrix([np.abs(wide - row).max(axis=1) for row in wide])


def _matrix(rows: list[NDArray[np.float64]]) -> Distances:
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(rows))


def greedy(distances: Distances, radius: float) -> Assignment:
    """Greedy first occurrence: a window near a retained one is dropped, and the first such stands for it.

    What is retained is at once a packing and a cover. The plain form of `near_duplicates.find_match`.

    Raises:
        OptionError: the radius is negative or no number.
    """
    if not radius >= 0:
        raise OptionError("radius", radius, "a number of at least 0")
    count = len(distances)
    representative, retained = np.arange(count), np.zeros(count, dtype=np.bool_)
    for arriving, row in enumerate(distances):
        near = np.flatnonzero(retained[:arriving] & (row[:arriving] <= radius))
        retained[arriving] = not near.size
        if near.size:
            representative[arriving] = near[0]
    return Assignment(representative, distances[np.arange(count), representative])


def packing(distances: Distances, delta: float) -> int:
    """Windows that the pass at 2 delta retains (t' = 4t - 3): whatever keeps a cover within delta keeps as many.

    No two of them have a common window within delta, by the triangle inequality. One less the share of this count is
    the removal ceiling of the paper's table 6.
    """
    return len(greedy(distances, 2 * delta).cluster_sizes)


def rate_bracket(packed: int, cluster_sizes: Sequence[int]) -> RateBracket:
    """The bracket over runs whose packings at 2 delta have `packed` windows and whose clusters at delta these sizes.

    Counts of several runs add up, since no window stands for one of another run.

    Raises:
        ValueError: there is no window.
    """
    windows = sum(cluster_sizes)
    if not windows:
        raise ValueError("cluster_sizes: no windows; allowed: at least one")
    entropy = log2(windows) - sum(size * log2(size) for size in cluster_sizes) / windows
    return RateBracket(log2(packed), entropy, log2(len(cluster_sizes)), log2(windows))


def largest_packing(distances: Distances, radius: float) -> int:
    """M(S, r): the most windows of which no two are near. Tries everything: exponential in N."""
    apart = distances > radius

    def most(candidates: list[int]) -> int:
        if not candidates:
            return 0
        first, *rest = candidates
        return max(most(rest), 1 + most([other for other in rest if apart[first, other]]))

    return most(list(range(len(distances))))


def smallest_cover(distances: Distances, radius: float) -> int:
    """N(S, r): the fewest windows, themselves in S, that every window is near one of. Exponential in N."""
    near = distances <= radius
    sizes = range(len(distances) + 1)
    choices = (centres for size in sizes for centres in combinations(range(len(distances)), size))
    return next(len(centres) for centres in choices if near[list(centres)].any(axis=0).all())
