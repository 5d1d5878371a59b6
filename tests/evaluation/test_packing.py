"""The greedy pass, its ceiling and the rate bracket: on points of a line, and as laws of any metric."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lam_vllm.bound import delta_of
from lam_vllm.encoders.base import OnePass
from lam_vllm.errors import OptionError
from lam_vllm.evaluation.measures.packing import (
    Distances,
    RateBracket,
    greedy,
    l2_matrix,
    largest_packing,
    linf_matrix,
    packing,
    rate_bracket,
    smallest_cover,
)
from lam_vllm.near_duplicates import RetainedWindows, find_match
from lam_vllm.ops.reference import l2_distances
from lam_vllm.types import Embedding

SEEDS = st.integers(0, 2**32 - 1)
POINTS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=10)


def line(*positions: float) -> Distances:
    """The distances of points on a line."""
    points = np.array(positions, dtype=np.float64)
    return np.abs(points[:, None] - points[None, :])


def plane(points: list[tuple[int, int]]) -> Distances:
    """City-block distances, which are whole numbers and therefore exact, ties included."""
    grid = np.array(points, dtype=np.float64)
    distances: Distances = np.abs(grid[:, None] - grid[None, :]).sum(axis=2)
    return distances


def unit_rows(seed: int, count: int, dimension: int = 40) -> Embedding:
    """Vectors in a few loose groups, some of them equal."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((3, dimension))
    rows = centres[rng.integers(0, 3, count)] + rng.choice([0.0, 0.1, 0.4], (count, 1)) * rng.standard_normal(
        (count, dimension)
    )
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def test_the_first_window_in_reach_stands_for_an_arriving_one_and_a_nearer_later_one_does_not() -> None:
    assignment = greedy(line(0, 3, 2, 3), radius=2)
    assert assignment.representative.tolist() == [0, 1, 0, 1]
    assert assignment.distance.tolist() == [0, 0, 2, 0]
    assert assignment.retained.tolist() == [True, True, False, False]
    assert (assignment.attained.tolist(), assignment.cluster_sizes) == ([2, 0], [2, 2])


def test_a_dropped_window_stands_for_nothing() -> None:
    assert greedy(line(0, 2, 4), radius=2).representative.tolist() == [0, 0, 2]


def test_a_distance_of_exactly_the_radius_is_near() -> None:
    assert greedy(line(0, 2), radius=2).cluster_sizes == [2]
    assert greedy(line(0, 2), radius=1.999).cluster_sizes == [1, 1]


@pytest.mark.parametrize("radius", [-0.1, float("nan")])
def test_a_radius_that_is_none_is_refused(radius: float) -> None:
    with pytest.raises(OptionError, match="radius"):
        greedy(line(0), radius)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, count=st.integers(0, 40), threshold_cos=st.sampled_from([0.8, 0.95, 0.99]))
def test_greedy_decides_as_the_rule_of_the_server_does(seed: int, count: int, threshold_cos: float) -> None:
    rows = unit_rows(seed, count)
    retained, places, expected = RetainedWindows(rows.shape[1]), [], []
    for place, row in enumerate(rows):
        found = find_match(str(place), OnePass(lambda _, row=row: row), retained, threshold_cos)  # type: ignore[misc]
        if found.match is None:
            retained.add(str(place), row, eligible=True)
            places.append(place)
            expected.append((place, 0.0))
        else:
            expected.append((places[found.match.representative], found.match.distance))
    assignment = greedy(l2_matrix(rows), delta_of(threshold_cos))
    assert list(zip(assignment.representative.tolist(), assignment.distance.tolist(), strict=True)) == expected


def test_the_matrices_hold_the_distances_of_each_two_rows() -> None:
    rows = np.array([[1, 0, 0], [0, 1, 0], [0.6, 0.8, 0]], dtype=np.float32)
    assert l2_matrix(rows)[1].tolist() == l2_distances(rows, rows[1]).tolist()
    assert linf_matrix(rows).round(6).tolist() == [[0, 1, 0.8], [1, 0, 0.6], [0.8, 0.6, 0]]


def test_no_rows_give_an_empty_matrix() -> None:
    none = np.empty((0, 3), dtype=np.float32)
    assert l2_matrix(none).shape == linf_matrix(none).shape == (0, 0)
    assert greedy(l2_matrix(none), 1.0).cluster_sizes == []


def test_the_packing_of_twice_the_radius_says_how_few_windows_can_do() -> None:
    chain = line(0, 2, 4)  # one window in the middle is near both others, greedy from the left keeps two
    assert greedy(chain, 2).cluster_sizes == [2, 1]
    assert packing(chain, 2) == 1
    assert (largest_packing(chain, 4), smallest_cover(chain, 2), largest_packing(chain, 2)) == (1, 1, 2)


def test_packing_and_cover_of_nothing_are_empty() -> None:
    nothing = np.empty((0, 0))
    assert (largest_packing(nothing, 1), smallest_cover(nothing, 1)) == (0, 0)


def check_order(distances: Distances, delta: float) -> None:
    """M(S, 2 delta) <= N(S, delta) <= M(S, delta), and greedy's counts in their places between."""
    cover = smallest_cover(distances, delta)
    assert packing(distances, delta) <= largest_packing(distances, 2 * delta) <= cover
    assert cover <= len(greedy(distances, delta).cluster_sizes) <= largest_packing(distances, delta)


@settings(max_examples=150, deadline=None)
@given(points=POINTS, delta=st.integers(0, 12))
def test_packing_and_covering_numbers_stand_in_their_order_with_ties(points: list[tuple[int, int]], delta: int) -> None:
    check_order(plane(points), delta)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, count=st.integers(1, 12), threshold_cos=st.floats(0.5, 0.999))
def test_packing_and_covering_numbers_stand_in_their_order_for_unit_vectors(
    seed: int, count: int, threshold_cos: float
) -> None:
    rows = unit_rows(seed, count)
    check_order(l2_matrix(rows), delta_of(threshold_cos))
    check_order(linf_matrix(rows), delta_of(threshold_cos) / 6)


@settings(max_examples=100, deadline=None)
@given(points=POINTS, radius=st.integers(0, 12))
def test_what_greedy_keeps_is_a_packing_and_a_cover(points: list[tuple[int, int]], radius: int) -> None:
    distances = plane(points)
    assignment = greedy(distances, radius)
    kept = distances[np.ix_(assignment.retained, assignment.retained)]
    assert (kept[~np.eye(len(kept), dtype=bool)] > radius).all()
    assert (assignment.distance <= radius).all()
    assert assignment.retained[assignment.representative].all()


def test_four_windows_in_two_equal_clusters_take_one_bit() -> None:
    assert rate_bracket(2, [2, 2]) == RateBracket(1.0, 1.0, 1.0, 2.0)


def test_uneven_clusters_have_less_entropy_than_the_log_of_their_number() -> None:
    bracket = rate_bracket(1, [6, 1, 1])
    assert bracket.log2_packing == 0
    assert bracket.entropy == pytest.approx(0.75 * log2(8 / 6) + 2 * 0.125 * 3)
    assert bracket.entropy < bracket.log2_retained == log2(3)


def test_a_bracket_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no windows"):
        rate_bracket(0, [])
