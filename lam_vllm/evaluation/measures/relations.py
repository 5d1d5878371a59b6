"""Which answers of a search can be proved unchanged, when windows are near in l2 and when in every coordinate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from lam_vllm.bound import delta_of
from lam_vllm.evaluation.measures.packing import Assignment, greedy
from lam_vllm.evaluation.measures.retrieval import Held, margins, movement_l2, movement_linf, provably_unchanged
from lam_vllm.evaluation.measures.space import RANKS, Space, joined

RelationName = Literal["l2", "linf_same_guarantee", "linf_same_removal"]
_HALVINGS = 20  # of [0, 2]: the radius to 2e-6
_Movement = Callable[[Held, float], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class RelationFigures:
    """One relation over the indexes of some runs (the paper, table 24).

    `removed` is the share of windows dropped at `radius`, `l2_hat` and `linf_hat` the largest distances attained,
    `mean_movement` the mean over queries of the most that a score can move by the relation's own bound. `unchanged`
    maps k to the share of queries whose top k is then provably the same set; it lacks a k that no index reaches.
    """

    name: RelationName
    radius: float
    removed: float
    l2_hat: float
    linf_hat: float
    mean_movement: float
    unchanged: Mapping[int, float]


def relations(spaces: Sequence[Space], threshold_cos: float) -> list[RelationFigures]:
    """Near in l2 at delta, and near in every coordinate at two radii.

    `linf_same_guarantee` takes delta / sqrt(D), within which l2 is at most delta too; `linf_same_removal` the smallest
    radius that is found to drop as many windows as l2 does.

    Raises:
        ValueError: there is no run with queries.
    """
    asked = [run for run in spaces if len(run.held.queries)]
    if not asked:
        raise ValueError("spaces: no queries; allowed: at least one run of several windows")
    delta = delta_of(threshold_cos)
    by_l2 = [greedy(run.index_l2, delta) for run in asked]
    dropped = sum(assignment.attained.size for assignment in by_l2)
    radii = (delta, delta / asked[0].held.index.shape[1] ** 0.5, _linf_radius(asked, dropped))
    return [_figures(name, asked, radius) for name, radius in zip(get_args(RelationName), radii, strict=True)]


def _figures(name: RelationName, spaces: Sequence[Space], radius: float) -> RelationFigures:
    matrices = [run.index_l2 if name == "l2" else run.index_linf for run in spaces]
    assignments = [greedy(matrix, radius) for matrix in matrices]
    pairs = list(zip(spaces, assignments, strict=True))
    l2_hat = max(_attained(run.index_l2, assignment) for run, assignment in pairs)
    linf_hat = max(_attained(run.index_linf, assignment) for run, assignment in pairs)
    movement: _Movement = movement_l2 if name == "l2" else movement_linf
    moved = [movement(run.held, l2_hat if name == "l2" else linf_hat) for run in spaces]
    windows = sum(len(matrix) for matrix in matrices)
    removed = sum(assignment.attained.size for assignment in assignments) / windows
    return RelationFigures(
        name, radius, removed, l2_hat, linf_hat, float(joined(moved).mean()), _unchanged(spaces, moved)
    )


def _unchanged(spaces: Sequence[Space], moved: Sequence[NDArray[np.float64]]) -> dict[int, float]:
    shares = {}
    for k in RANKS:
        pairs = [(run, most) for run, most in zip(spaces, moved, strict=True) if run.scores.shape[1] > k]
        same = joined(provably_unchanged(margins(run.scores, k), most) for run, most in pairs)
        if same.size:
            shares[k] = float(same.mean())
    return shares


def _attained(distances: NDArray[np.float64], assignment: Assignment) -> float:
    """The largest distance of a window to the one that stands for it, in this metric."""
    return float(distances[np.arange(len(distances)), assignment.representative].max())


def _linf_radius(spaces: Sequence[Space], dropped: int) -> float:
    low, high = 0.0, 2.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        enough = sum(greedy(run.index_linf, middle).attained.size for run in spaces) >= dropped
        low, high = (low, middle) if enough else (middle, high)
    return high
