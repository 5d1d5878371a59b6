"""Figures of the embedding space of recorded runs: kept windows, ceiling, distances, rate, search and rank margins.

Each run is by itself: matches, packings and searches stay inside it, and counts of several runs add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lam_vllm.bound import delta_of
from lam_vllm.evaluation.measures.distances import AttainedDistances, attained_distances
from lam_vllm.evaluation.measures.packing import (
    Distances,
    RateBracket,
    greedy,
    l2_matrix,
    linf_matrix,
    packing,
    rate_bracket,
)
from lam_vllm.evaluation.measures.retrieval import Held, Scores, hold_out, margins, recall_at_k, score_drops, scores
from lam_vllm.types import Embedding

QUERY_EVERY = 5
RANKS = (1, 3, 5, 10, 20)
RECALL_K = 10


@dataclass(frozen=True, slots=True)
class Space:
    """One run: the l2 distances of all its windows; its held-out queries, and the distances of the index they ask."""

    distances: Distances
    held: Held
    scores: Scores
    index_l2: Distances
    index_linf: Distances


@dataclass(frozen=True, slots=True)
class WindowFigures:
    """At one t: shares of windows kept, removed, and removable within delta at most (the paper, tables 3, 6, 11, 23).

    `distances` is None where no window was dropped.
    """

    windows: int
    kept: float
    removed: float
    ceiling: float
    distances: AttainedDistances | None
    rate: RateBracket


@dataclass(frozen=True, slots=True)
class RetrievalFigures:
    """At one t, over `queries` queries: mean R@10, and the largest fall of a best score beside the largest distance.

    `bound_violations` counts queries whose best score fell by more than the delta_hat of their run: there are none.
    `recall_at_10` is None where no run has more than ten windows to search.
    """

    queries: int
    recall_at_10: float | None
    largest_score_drop: float
    delta_hat: float
    bound_violations: int


@dataclass(frozen=True, slots=True)
class RankMargins:
    """Score of rank k less score of rank k + 1, over the queries that have both (the paper, table 25)."""

    k: int
    queries: int
    median: float
    p90: float
    p99: float
    max: float


def space(rows: Embedding) -> Space:
    """The space of one run's (N, D) embeddings; every fifth window is a query. Takes 24 N^2 bytes at most."""
    held = hold_out(rows, QUERY_EVERY)
    return Space(l2_matrix(rows), held, scores(held), l2_matrix(held.index), linf_matrix(held.index))


def window_figures(spaces: Sequence[Space], threshold_cos: float) -> WindowFigures:
    """What the greedy rule at `threshold_cos` keeps of all windows of these runs.

    Raises:
        OptionError: `threshold_cos` is 1, under which no distance is a share of delta.
        ValueError: there is no window.
    """
    delta = delta_of(threshold_cos)
    assignments = [greedy(run.distances, delta) for run in spaces]
    sizes = [size for assignment in assignments for size in assignment.cluster_sizes]
    packed, windows = sum(packing(run.distances, delta) for run in spaces), sum(sizes)
    distances = attained_distances(joined(assignment.attained for assignment in assignments), delta)
    rate, kept = rate_bracket(packed, sizes), len(sizes) / windows
    return WindowFigures(windows, kept, 1 - kept, 1 - packed / windows, distances, rate)


def retrieval_figures(spaces: Sequence[Space], threshold_cos: float) -> RetrievalFigures:
    """What a search over the retained windows finds, over the runs with queries and more than ten windows to search."""
    asked = [run for run in spaces if len(run.held.queries) and len(run.held.index) > RECALL_K]
    assignments = [greedy(run.index_l2, delta_of(threshold_cos)) for run in asked]
    pairs = list(zip(asked, assignments, strict=True))
    shares = joined(recall_at_k(run.scores, assignment, RECALL_K) for run, assignment in pairs)
    drops = [score_drops(run.scores, assignment) for run, assignment in pairs]
    hats = [float(assignment.distance.max()) for assignment in assignments]
    return RetrievalFigures(
        shares.size,
        float(shares.mean()) if shares.size else None,
        float(joined(drops).max(initial=0.0)),
        max(hats, default=0.0),
        sum(int((drop > hat).sum()) for drop, hat in zip(drops, hats, strict=True)),
    )


def rank_margins(spaces: Sequence[Space]) -> list[RankMargins]:
    """The margins at each of `RANKS` that some query has."""
    gaps = {k: joined(margins(run.scores, k) for run in spaces if run.scores.shape[1] > k) for k in RANKS}
    return [
        RankMargins(k, found.size, *map(float, np.quantile(found, [0.5, 0.9, 0.99, 1.0])))
        for k, found in gaps.items()
        if found.size
    ]


def joined(arrays: Iterable[NDArray[Any]]) -> NDArray[Any]:
    """One array of all the values, empty where there are none."""
    return np.concatenate([np.empty(0), *arrays])
