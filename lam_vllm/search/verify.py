"""The only place that says "match"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from lam_vllm.bound import delta_of
from lam_vllm.ops.arrays import HOST, Arrays
from lam_vllm.types import Candidate, Embedding, Match

BOUNDARY_L2 = 1e-5


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the distances of the candidates say.

    `boundary_pairs` counts those within `BOUNDARY_L2` of the radius, up to and with the match: another kind of CPU
    might decide them otherwise.
    """

    match: Match | None
    boundary_pairs: int


def verify(
    candidates: Sequence[Candidate], rows: Embedding, query: Embedding, radius: float, arrays: Arrays = HOST
) -> Verdict:
    """The lowest-indexed candidate whose l2 distance to the query is at most `radius`, and the pairs that were close.

    `rows` is (N, D) and `query` (D,), float32 of unit length. Distances are those of `ops.reference`, by
    `arrays`. A radius of 0 accepts identical vectors.
    """
    indices = sorted(candidate.index for candidate in candidates)
    distances = arrays.l2_distances(rows[indices], query)
    within = np.flatnonzero(distances <= radius)
    match = Match(indices[within[0]], float(distances[within[0]])) if within.size else None
    decisive = distances[: within[0] + 1] if within.size else distances
    return Verdict(match, int(np.count_nonzero(np.abs(decisive - radius) <= BOUNDARY_L2)))


def verify_near(
    candidates: Sequence[Candidate],
    rows: Embedding,
    query: Embedding,
    threshold_cos: float,
    guard_band: float,
    canonical_distance: Callable[[int], float],
) -> Verdict:
    """As `verify` would decide canonical embeddings, from embeddings whose cosines lie within `guard_band` of theirs.

    A pair whose cosine is further than that from t is decided by it. Of the others, those before the first certain
    match are decided one after the other by `canonical_distance(index)`, the l2 distance of the canonical embeddings.
    The distance of a match that was certain is an upper bound.
    """
    radius, boundary_pairs = delta_of(threshold_cos), 0
    for index in sorted(candidate.index for candidate in candidates):
        cosine = float(rows[index].astype(np.float64) @ query.astype(np.float64))
        if cosine >= threshold_cos + guard_band:
            return Verdict(Match(index, min(radius, _farthest(cosine - guard_band))), boundary_pairs)
        if cosine < threshold_cos - guard_band:
            continue
        distance = canonical_distance(index)
        boundary_pairs += abs(distance - radius) <= BOUNDARY_L2
        if distance <= radius:
            return Verdict(Match(index, distance), boundary_pairs)
    return Verdict(None, boundary_pairs)


def _farthest(cosine: float) -> float:
    """The l2 distance of two unit vectors whose cosine is at least this."""
    return sqrt(max(0.0, 2.0 - 2.0 * cosine))
