"""Search under the substitution map: by hand in two dimensions, and the bounds as laws."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lam_vllm.bound import delta_of
from lam_vllm.errors import OptionError
from lam_vllm.evaluation.measures.packing import greedy, l2_matrix, linf_matrix
from lam_vllm.evaluation.measures.relations import relations
from lam_vllm.evaluation.measures.retrieval import (
    Held,
    hold_out,
    margins,
    movement_l2,
    movement_linf,
    provably_unchanged,
    recall_at_k,
    score_drops,
    scores,
)
from lam_vllm.evaluation.measures.space import rank_margins, retrieval_figures, space, window_figures
from lam_vllm.types import Embedding

SEEDS = st.integers(0, 2**32 - 1)


def at_angles(*degrees: float) -> Embedding:
    """Unit vectors of the plane."""
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def unit_rows(seed: int, count: int, dimension: int = 16) -> Embedding:
    """Vectors in loose groups."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((4, dimension))[rng.integers(0, 4, count)]
    rows += rng.choice([0.02, 0.2, 0.5], (count, 1)) * rng.standard_normal((count, dimension))
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def held(query: float, *index: float) -> Held:
    return Held(at_angles(query), at_angles(*index))


def chord(degrees: float) -> float:
    """The l2 distance of unit vectors at this angle, and a little more."""
    return 2 * float(np.sin(np.radians(degrees) / 2)) + 1e-6


def test_every_third_window_is_a_query_and_in_no_index() -> None:
    rows = at_angles(0, 10, 20, 30, 40, 50, 60)
    divided = hold_out(rows, every=3)
    assert divided.queries.tolist() == rows[[2, 5]].tolist()
    assert divided.index.tolist() == rows[[0, 1, 3, 4, 6]].tolist()


def test_a_short_run_has_no_query() -> None:
    assert len(hold_out(at_angles(0, 10), every=3).queries) == 0


def test_scores_are_cosines_of_queries_and_index() -> None:
    assert scores(held(0, 0, 60, 90, 180)).round(6).tolist() == [[1, 0.5, 0, -1]]


# Windows at 0 and 4 degrees are one after compaction at 5 degrees; the query at 4 then finds the one at 8 first.
NEAR = held(4.5, 0, 4, 9.5, 40)


def test_the_representative_of_the_best_window_may_rank_lower() -> None:
    assignment = greedy(l2_matrix(NEAR.index), chord(5))
    assert assignment.representative.tolist() == [0, 0, 2, 3]
    assert recall_at_k(scores(NEAR), assignment, 1).tolist() == [1.0]  # 0 stands for 4 and beats 9.5: 4.5 against 5
    further = held(5, 0, 4, 9.5, 40)
    assert recall_at_k(scores(further), assignment, 1).tolist() == [0.0]  # now 9.5 is nearer than 0
    assert recall_at_k(scores(further), assignment, 2).tolist() == [1.0]


def test_recall_counts_results_of_the_full_index_not_representatives() -> None:
    divided = held(5, 0, 4, 9.5, 60)
    assignment = greedy(l2_matrix(divided.index), chord(5))
    assert recall_at_k(scores(divided), assignment, 3).tolist() == [1.0]  # 4, 9.5 and 0: the last two places are one
    assert recall_at_k(scores(divided), assignment, 1).tolist() == [0.0]


def test_of_equal_scores_the_lower_index_ranks_first() -> None:
    divided = held(0, 30, -30, 90)
    everything = greedy(l2_matrix(divided.index), 0.0)
    assert recall_at_k(scores(divided), everything, 1).tolist() == [1.0]
    without_second = greedy(l2_matrix(divided.index), chord(60))
    assert without_second.representative.tolist() == [0, 0, 0]
    assert recall_at_k(scores(divided), without_second, 1).tolist() == [1.0]


def test_the_best_score_falls_by_what_the_representative_lacks() -> None:
    divided = held(4, 0, 4, 40)
    drops = score_drops(scores(divided), greedy(l2_matrix(divided.index), chord(5)))
    assert drops.round(6).tolist() == [round(1 - np.cos(np.radians(4)), 6)]


@settings(max_examples=80, deadline=None)
@given(seed=SEEDS, count=st.integers(2, 40), threshold_cos=st.sampled_from([0.8, 0.95, 0.99]))
def test_no_unit_query_loses_more_than_the_largest_distance_used(seed: int, count: int, threshold_cos: float) -> None:
    index = unit_rows(seed, count)
    random = np.random.default_rng(seed).standard_normal((20, index.shape[1]))
    queries = np.concatenate([random / np.linalg.norm(random, axis=1, keepdims=True), index]).astype(np.float32)
    assignment = greedy(l2_matrix(index), delta_of(threshold_cos))
    assert score_drops(scores(Held(queries, index)), assignment).max() <= assignment.distance.max()


@settings(max_examples=80, deadline=None)
@given(seed=SEEDS, count=st.integers(2, 40), radius=st.floats(0.01, 0.3))
def test_no_score_moves_by_more_than_either_bound(seed: int, count: int, radius: float) -> None:
    divided = Held(unit_rows(seed + 1, 10), unit_rows(seed, count))
    linf, l2 = linf_matrix(divided.index), l2_matrix(divided.index)
    chosen = greedy(linf, radius).representative
    places = np.arange(count)
    found = scores(divided)
    moved = np.abs(found - found[:, chosen]).max(axis=1)
    assert (moved <= movement_linf(divided, linf[places, chosen].max())).all()
    assert (moved <= movement_l2(divided, l2[places, chosen].max())).all()


def test_the_bound_of_a_query_is_its_own_sum_of_coordinates() -> None:
    divided = Held(at_angles(0, 45), at_angles(10))
    assert movement_linf(divided, 0.1).round(6).tolist() == [0.1, round(0.1 * 2**0.5, 6)]
    assert movement_l2(divided, 0.1).tolist() == [0.1, 0.1]


def test_margins_are_between_neighbouring_ranks() -> None:
    found = np.array([[0.1, 0.9, 0.5], [0.3, 0.3, 0.2]])
    assert margins(found, 1).round(6).tolist() == [0.4, 0]
    assert margins(found, 2).round(6).tolist() == [0.4, 0.1]


@pytest.mark.parametrize("k", [0, 3])
def test_a_rank_that_the_index_lacks_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match="k: "):
        margins(np.array([[0.1, 0.9, 0.5]]), k)


def top(found: NDArray[np.float64], k: int) -> set[int]:
    return set(np.argsort(-found)[:k].tolist())


def test_a_margin_of_just_twice_the_movement_proves_nothing() -> None:
    assert provably_unchanged(np.array([0.2, 0.5]), np.array([0.1, 0.1])).tolist() == [False, True]


@settings(max_examples=80, deadline=None)
@given(seed=SEEDS, count=st.integers(2, 20), movement=st.floats(0.001, 0.2))
def test_what_is_proved_unchanged_is_unchanged_under_the_worst_movement(seed: int, count: int, movement: float) -> None:
    found = scores(Held(unit_rows(seed + 1, 5), unit_rows(seed, count)))
    for k in range(1, count):
        proved = provably_unchanged(margins(found, k), np.full(5, movement))
        for query in np.flatnonzero(proved):
            best = top(found[query], k)
            worst = np.array([score - movement if place in best else score + movement
                              for place, score in enumerate(found[query])])  # fmt: skip
            assert top(worst, k) == best


def test_figures_of_a_run_that_repeats_one_window_four_times() -> None:
    rows = np.concatenate([at_angles(0, 90, 180, 0, 270), at_angles(0, 0, 45)])
    figures = window_figures([space(rows)], threshold_cos=0.99)
    assert (figures.windows, figures.kept, figures.removed, figures.ceiling) == (8, 5 / 8, 3 / 8, 3 / 8)
    assert figures.distances is not None
    assert (figures.distances.count, figures.distances.max) == (3, 0.0)


def test_the_ceiling_is_that_of_twice_the_bound() -> None:
    figures = window_figures([space(at_angles(0, 10, 90))], threshold_cos=0.99)  # delta is 8.1 degrees
    assert figures.removed == 0
    assert figures.ceiling == pytest.approx(1 / 3)
    assert (figures.rate.log2_packing, figures.rate.log2_retained) == (1, log2(3))


def test_runs_add_up_and_do_not_match_each_other() -> None:
    run = space(at_angles(0, 90))
    figures = window_figures([run, run], threshold_cos=0.99)
    assert (figures.windows, figures.removed, figures.rate.log2_retained) == (4, 0.0, 2.0)
    assert figures.distances is None


def test_window_figures_need_windows_and_a_bound() -> None:
    with pytest.raises(OptionError, match="delta"):
        window_figures([space(at_angles(0, 90))], threshold_cos=1.0)
    with pytest.raises(ValueError, match="no windows"):
        window_figures([], threshold_cos=0.95)


def test_a_run_too_small_to_search_gives_no_recall_rather_than_a_perfect_one() -> None:
    figures = retrieval_figures([space(unit_rows(0, 10))], threshold_cos=0.95)
    assert (figures.queries, figures.recall_at_10, figures.bound_violations) == (0, None, 0)


def test_figures_of_a_search_hold_the_bound_and_count_its_queries() -> None:
    runs = [space(unit_rows(seed, 40)) for seed in range(3)]
    figures = retrieval_figures(runs, threshold_cos=0.9)
    assert (figures.queries, figures.bound_violations) == (24, 0)
    assert 0 < figures.largest_score_drop <= figures.delta_hat <= delta_of(0.9)
    assert figures.recall_at_10 is not None
    assert 0.5 < figures.recall_at_10 < 1
    assert [line.k for line in rank_margins(runs)] == [1, 3, 5, 10, 20]


def test_the_narrow_relation_guarantees_l2_and_the_wide_one_removes_as_much() -> None:
    runs = [space(unit_rows(seed, 40)) for seed in range(3)]
    by_name = {figures.name: figures for figures in relations(runs, threshold_cos=0.9)}
    l2, narrow, wide = by_name["l2"], by_name["linf_same_guarantee"], by_name["linf_same_removal"]
    assert narrow.l2_hat <= delta_of(0.9) == l2.radius
    assert narrow.removed <= l2.removed <= wide.removed
    assert l2.mean_movement == pytest.approx(l2.l2_hat)
    assert wide.mean_movement > wide.linf_hat == pytest.approx(wide.radius, abs=1e-5)
    assert set(l2.unchanged) == {1, 3, 5, 10, 20}


def test_relations_need_a_query() -> None:
    with pytest.raises(ValueError, match="no queries"):
        relations([space(at_angles(0, 90))], threshold_cos=0.9)
