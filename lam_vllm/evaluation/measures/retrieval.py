"""What a search over the retained windows still finds, and what the bound says about it.

Queries are held-out windows of the same run. The *full index* holds all its other windows, the *retained index* those
that the greedy rule keeps of them; the substitution map leads from a window to the one that stands for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lam_vllm.evaluation.measures.packing import Assignment
from lam_vllm.types import Embedding

Scores: TypeAlias = NDArray[np.float64]  # (Q, N): dot products of unit queries and windows


@dataclass(frozen=True, slots=True)
class Held:
    """The windows of one run, divided: `queries` (Q, D) and `index` (N, D), float32 of unit length."""

    queries: Embedding
    index: Embedding


def hold_out(rows: Embedding, every: int) -> Held:
    """Of (N, D) windows the last of every `every` is a query and not in the index; the first window never is."""
    asked = np.arange(len(rows)) % every == every - 1
    return Held(rows[asked], rows[~asked])


def scores(held: Held) -> Scores:
    """(Q, N) score of every window of the full index for every query, in float64, queries scaled to length 1."""
    queries = held.queries.astype(np.float64)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    result: Scores = queries @ held.index.astype(np.float64).T
    return result


def recall_at_k(found: Scores, assignment: Assignment, k: int) -> NDArray[np.float64]:
    """(Q,) R@k: the share of the full index's top k whose representative is in the retained index's top k.

    This is the overlap with the full index's top k of the paper's table 3, under the substitution map. Of equal scores
    the lower index ranks first. Full and retained top k hold fewer than k windows where the index does.
    """
    kept = np.flatnonzero(assignment.retained)
    wanted = assignment.representative[_top(found, k)]
    given = kept[_top(found[:, kept], k)]
    shares: NDArray[np.float64] = (wanted[:, :, None] == given[:, None, :]).any(axis=2).mean(axis=1)
    return shares


def score_drops(found: Scores, assignment: Assignment) -> NDArray[np.float64]:
    """(Q,) by how much each query's best score falls when only retained windows are left: at most delta_hat."""
    drops: NDArray[np.float64] = found.max(axis=1) - found[:, assignment.retained].max(axis=1)
    return drops


def margins(found: Scores, k: int) -> NDArray[np.float64]:
    """(Q,) score of rank k less score of rank k + 1 in the full index (the paper, table 25).

    Raises:
        ValueError: the index has no rank k + 1.
    """
    if not 1 <= k < found.shape[1]:
        raise ValueError(f"k: {k} is not allowed; allowed: 1 to {found.shape[1] - 1}, one less than windows")
    ranked = -np.sort(-found, axis=1)
    gaps: NDArray[np.float64] = ranked[:, k - 1] - ranked[:, k]
    return gaps


def movement_l2(held: Held, delta_hat: float) -> NDArray[np.float64]:
    """(Q,) the most that a score can move when windows move by `delta_hat` in l2: |q.(x - y)| <= |q|_2 |x - y|_2."""
    return np.full(len(held.queries), delta_hat, dtype=np.float64)


def movement_linf(held: Held, linf_hat: float) -> NDArray[np.float64]:
    """(Q,) the same when no coordinate moves by more than `linf_hat`: |q.(x - y)| <= |q|_1 |x - y|_inf.

    |q|_1 of each query is taken, not its largest value over all unit queries, sqrt(D): the sharper of the two bounds.
    """
    queries = held.queries.astype(np.float64)
    lengths: NDArray[np.float64] = np.abs(queries).sum(axis=1) / np.linalg.norm(queries, axis=1)
    return lengths * linf_hat


def provably_unchanged(margin: NDArray[np.float64], movement: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(Q,) whether each top k stays the same set however scores move within `movement` (the paper, table 24).

    One of the top k may fall by it and one below rise by it, so the margin has to be more than twice as wide.
    """
    return margin > 2 * movement


def _top(found: Scores, k: int) -> NDArray[np.intp]:
    """(Q, min(k, N)) columns of the k best scores, best first."""
    return np.argsort(-found, axis=1, kind="stable")[:, :k]
