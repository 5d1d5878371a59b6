"""The pruned search finds what the exhaustive one does, with any orthonormal basis."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lam_vllm.bound import delta_of
from lam_vllm.encoders.profile import read_profile
from lam_vllm.evaluation.baselines.windowed import WindowedRun
from lam_vllm.ops.reference import l2_distances
from lam_vllm.search import ExhaustiveSearch, PrunedSearch, verify
from lam_vllm.search.basis import principal_basis, read_basis
from lam_vllm.types import Embedding
from tests.search.made import mixed_rows, some_basis, unit

THRESHOLDS = (0.5, 0.9, 0.95, 0.99, 0.9999, 1.0)
BASES = ("random", "through the query", "across the query", "axes", "principal")


def basis_of(kind: str, seed: int, count: int, query: Embedding, rows: Embedding) -> NDArray[np.float64]:
    """A basis that knows the query, or nothing of it, or nothing at all."""
    dimension = len(query)
    drawn = np.random.default_rng(seed).standard_normal((dimension, count))
    if kind == "through the query":
        drawn[:, 0] = query
    elif kind == "across the query":
        drawn -= np.outer(query, query @ drawn)
    elif kind == "axes":
        drawn = np.eye(dimension, count)
    elif kind == "principal":
        drawn = principal_basis(rows).astype(np.float64)[:count].T
    basis: NDArray[np.float64] = np.linalg.qr(drawn)[0].T
    return basis


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from([(2, 1), (2, 2), (33, 8), (33, 16), (33, 33), (200, 64)]),
    threshold_cos=st.sampled_from(THRESHOLDS),
    kind=st.sampled_from(BASES),
)
def test_after_verification_it_equals_exhaustive_search(
    seed: int, shape: tuple[int, int], threshold_cos: float, kind: str
) -> None:
    dimension, count = shape
    query, rows = mixed_rows(seed, dimension, threshold_cos, 10)
    eligible = np.random.default_rng(seed).random(len(rows)) < 0.7
    radius = delta_of(threshold_cos)
    search = PrunedSearch(basis_of(kind, seed, count, query, rows))

    candidates = search.propose(rows, eligible, query, threshold_cos)

    exhaustive = ExhaustiveSearch().propose(rows, eligible, query, threshold_cos)
    assert verify(candidates, rows, query, radius) == verify(exhaustive, rows, query, radius)
    places = [candidate.index for candidate in candidates]
    near = np.flatnonzero(eligible & (l2_distances(rows, query) <= radius + 1e-5)).tolist()
    assert places == sorted(set(places))
    assert set(near) <= set(places)
    assert all(eligible[place] for place in places)
    assert search.complete


def test_a_row_that_a_short_prefix_rules_out_is_not_looked_at_whole() -> None:
    rng = np.random.default_rng(5)
    rows = unit(rng.standard_normal((200, 384)) * np.geomspace(1, 1e-3, 384))
    everywhere = np.ones(200, np.bool_)
    good, bad = PrunedSearch(principal_basis(rows).astype(np.float64)), PrunedSearch(np.eye(384)[-64:])
    assert len(good.left(rows, everywhere, rows[0], 0.95)) < 20
    assert len(bad.left(rows, everywhere, rows[0], 0.95)) == 200


@pytest.mark.parametrize(("count", "bytes_a_row"), [(1, 8), (16, 68), (17, 140), (64, 328), (70, 328)])
def test_it_keeps_the_first_coordinates_and_the_length_of_the_rest(count: int, bytes_a_row: int) -> None:
    search = PrunedSearch(some_basis(1, count, 96))
    rows = unit(np.random.default_rng(2).standard_normal((5, 96)))
    assert search.nbytes == 0
    search.propose(rows, np.ones(5, np.bool_), rows[0], 0.95)
    assert search.nbytes == 5 * bytes_a_row


def test_with_the_shipped_basis_every_prefix_of_a_recorded_run_is_decided_alike(
    recorded: tuple[WindowedRun, Embedding],
) -> None:
    _, rows = recorded
    path = read_profile("minilm").basis
    assert path is not None
    search = PrunedSearch(read_basis(path, rows.shape[1]))
    looked_at = pairs = found = 0
    for threshold_cos in (0.8, 0.95, 0.99):
        for place, query in enumerate(rows):
            before, eligible = rows[:place], np.ones(place, np.bool_)
            exact = ExhaustiveSearch().propose(before, eligible, query, threshold_cos)
            ours = search.fork(0).propose(before, eligible, query, threshold_cos)
            radius = delta_of(threshold_cos)
            verdict = verify(ours, before, query, radius)
            assert verdict == verify(exact, before, query, radius)
            found += verdict.match is not None
            if threshold_cos == 0.95:
                looked_at += len(search.fork(0).left(before, eligible, query, threshold_cos))
                pairs += place
    assert found >= 30, "the run has near windows"
    assert looked_at < 0.3 * pairs, "most pairs are ruled out early"
