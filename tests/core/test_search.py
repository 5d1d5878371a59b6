"""Search proposes, verification proves: together they equal brute force in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lam_vllm.bound import delta_of
from lam_vllm.encoders.two_pass import MARGIN_COS
from lam_vllm.ops.reference import l2_distances
from lam_vllm.search import ExhaustiveSearch, verify, verify_near
from lam_vllm.types import Candidate, Embedding, Match
from tests.search.made import near_threshold, unit

THRESHOLDS = (0.5, 0.9, 0.95, 0.99, 0.9999, 1.0)


def _brute_force(rows: Embedding, eligible: NDArray[np.bool_], query: Embedding, radius: float) -> Match | None:
    for index in np.flatnonzero(eligible).tolist():
        distance = float(l2_distances(rows[index : index + 1], query)[0])
        if distance <= radius:
            return Match(index, distance)
    return None


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    dimension=st.sampled_from([1, 2, 33, 384, 768]),
    count=st.integers(0, 60),
    threshold_cos=st.sampled_from(THRESHOLDS),
)
def test_search_and_verification_equal_brute_force(seed: int, dimension: int, count: int, threshold_cos: float) -> None:
    rng = np.random.default_rng(seed)
    query = unit(rng.standard_normal(dimension))
    far = unit(rng.standard_normal((count, dimension)))
    near = near_threshold(rng, query, threshold_cos, count) if dimension > 1 else far
    rows = rng.permutation(np.concatenate([far, near, query[None]]))
    eligible = rng.random(len(rows)) < 0.7
    radius = delta_of(threshold_cos)

    candidates = ExhaustiveSearch().propose(rows, eligible, query, threshold_cos)
    verdict = verify(candidates, rows, query, radius)

    distances = l2_distances(rows[eligible], query)
    within = np.flatnonzero(distances <= radius)
    decisive = distances[: within[0] + 1] if within.size else distances
    assert verdict.match == _brute_force(rows, eligible, query, radius)
    assert verdict.boundary_pairs == int(np.sum(np.abs(decisive - radius) <= 1e-5))
    indices = [candidate.index for candidate in candidates]
    assert indices == sorted(set(indices))
    assert all(eligible[index] for index in indices)


def test_pairs_clearly_below_the_threshold_are_ruled_out() -> None:
    query = unit(np.array([1.0, 0.0]))
    rows = unit(np.array([[0.9498, np.sqrt(1 - 0.9498**2)], [0.9502, np.sqrt(1 - 0.9502**2)]]))
    assert ExhaustiveSearch().propose(rows, np.ones(2, np.bool_), query, 0.95) == [Candidate(1)]


def test_a_candidate_beyond_the_radius_is_no_match() -> None:
    query = unit(np.array([1.0, 0.0]))
    rows = unit(np.array([[0.0, 1.0], [1.0, 0.1]]))
    assert verify([Candidate(0)], rows, query, 0.3).match is None
    match = verify([Candidate(1), Candidate(0)], rows, query, 0.3).match
    assert match is not None
    assert match.representative == 1
    assert match.distance == float(l2_distances(rows, query)[1])


def test_the_lowest_index_wins_over_the_nearest() -> None:
    query = unit(np.array([1.0, 0.0]))
    rows = unit(np.array([[1.0, 0.2], [1.0, 0.0]]))
    match = verify([Candidate(1), Candidate(0)], rows, query, 0.3).match
    assert match is not None
    assert match.representative == 0


def test_a_distance_equal_to_the_radius_is_a_match() -> None:
    rows, query = unit(np.array([[1.0, 0.2]])), unit(np.array([1.0, 0.0]))
    radius = float(l2_distances(rows, query)[0])
    assert verify([Candidate(0)], rows, query, radius).match == Match(0, radius)
    assert verify([Candidate(0)], rows, query, float(np.nextafter(radius, 0))).match is None


def test_threshold_one_accepts_identical_vectors_only() -> None:
    query = unit(np.random.default_rng(3).standard_normal(384))
    almost = query.copy()
    almost[7] = np.nextafter(almost[7], np.float32(1))
    rows = np.stack([almost, query])
    candidates = ExhaustiveSearch().propose(rows, np.ones(2, np.bool_), query, 1.0)
    assert candidates == [Candidate(0), Candidate(1)]
    assert verify(candidates, rows, query, delta_of(1.0)).match == Match(1, 0.0)


def test_pairs_at_the_boundary_are_counted_on_both_sides_up_to_the_match() -> None:
    query = np.array([1.0, 0.0], np.float32)
    offsets = np.array([[0.3 + 4e-6, 0.0], [0.3 + 4e-5, 0.0], [0.3 - 4e-6, 0.0], [0.3 + 4e-6, 0.0]], np.float32)
    verdict = verify([Candidate(index) for index in range(4)], query + offsets, query, 0.3)
    assert verdict.match is not None
    assert (verdict.match.representative, verdict.boundary_pairs) == (2, 2)


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    dimension=st.sampled_from([2, 33, 384]),
    count=st.integers(0, 60),
    threshold_cos=st.sampled_from(THRESHOLDS),
    error=st.sampled_from([0.0, 1e-6, 1e-3, 0.02]),
)
def test_inexact_embeddings_decide_as_canonical_ones_do(
    seed: int, dimension: int, count: int, threshold_cos: float, error: float
) -> None:
    rng = np.random.default_rng(seed)
    query = unit(rng.standard_normal(dimension))
    spread = unit(rng.standard_normal((count, dimension)))
    rows = rng.permutation(np.concatenate([spread, near_threshold(rng, query, threshold_cos, count), query[None]]))
    moved_rows = unit(rows + error * rng.standard_normal(rows.shape) / np.sqrt(dimension))
    moved_query = unit(query + error * rng.standard_normal(dimension) / np.sqrt(dimension))
    cosines = moved_rows.astype(np.float64) @ moved_query - rows.astype(np.float64) @ query
    band = float(np.abs(cosines).max()) + MARGIN_COS
    asked: list[int] = []

    def canonical_distance(index: int) -> float:
        asked.append(index)
        return float(l2_distances(rows[index : index + 1], query)[0])

    everywhere = np.ones(len(rows), np.bool_)
    wide = ExhaustiveSearch().propose(moved_rows, everywhere, moved_query, threshold_cos - band)
    found = verify_near(wide, moved_rows, moved_query, threshold_cos, band, canonical_distance)
    exact = verify(
        ExhaustiveSearch().propose(rows, everywhere, query, threshold_cos), rows, query, delta_of(threshold_cos)
    )
    assert found.boundary_pairs == exact.boundary_pairs
    assert (found.match is None) == (exact.match is None)
    if found.match is not None and exact.match is not None:
        assert found.match.representative == exact.match.representative
        assert exact.match.distance <= found.match.distance + 1e-6
        assert found.match.distance <= delta_of(threshold_cos) + 1e-6
    assert len(set(asked)) == len(asked), "no pair is decided twice"
    last = found.match.representative if found.match is not None else len(rows)
    assert all(index <= last for index in asked), "nothing behind the match is looked at"


def test_a_pair_outside_the_band_needs_no_canonical_embedding() -> None:
    query = unit(np.array([1.0, 0.0]))
    rows = unit(np.array([[0.9, np.sqrt(1 - 0.81)], [0.98, np.sqrt(1 - 0.98**2)]]))

    def never(index: int) -> float:
        raise AssertionError(f"pair {index} was decided anew")

    found = verify_near([Candidate(0), Candidate(1)], rows, query, 0.95, 0.01, never)
    assert found.match is not None
    assert found.match.representative == 1
    assert found.match.distance == pytest.approx(np.sqrt(2 - 2 * 0.97), abs=1e-6)


@pytest.mark.parametrize("rows", [0, 3])
def test_nothing_eligible_means_no_candidates_and_no_match(rows: int) -> None:
    query = unit(np.ones(384))
    matrix = np.repeat(query[None], rows, axis=0)
    candidates = ExhaustiveSearch().propose(matrix, np.zeros(rows, np.bool_), query, 0.95)
    assert candidates == []
    assert verify(candidates, matrix, query, 0.3).match is None
