"""The only place that says "match"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lam_vllm.ops.reference import l2_distances
from lam_vllm.types import Candidate, Embedding, Match

BOUNDARY_L2 = 1e-5


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the exact distances of the candidates say.

    `boundary_pairs` counts those within `BOUNDARY_L2` of the radius: another kind of CPU might decide them otherwise.
    """

    match: Match | None
    boundary_pairs: int


def verify(candidates: Sequence[Candidate], rows: Embedding, query: Embedding, radius: float) -> Verdict:
    """The lowest-indexed candidate whose l2 distance to the query is at most `radius`, and the pairs that were close.

    `rows` is (N, D) and `query` (D,), float32 of unit length. Distances are those of `ops.reference`. A radius of 0
    accepts identical vectors.
    """
    indices = sorted(candidate.index for candidate in candidates)
    distances = l2_distances(rows[indices], query)
    within = np.flatnonzero(distances <= radius)
    match = Match(indices[within[0]], float(distances[within[0]])) if within.size else None
    return Verdict(match, int(np.count_nonzero(np.abs(distances - radius) <= BOUNDARY_L2)))
