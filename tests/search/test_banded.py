"""The banded search proposes the near rows that agree in a band, and no others, however the rows arrived."""

from __future__ import annotations

from math import ceil, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lam_vllm.bound import delta_of
from lam_vllm.evaluation.baselines.windowed import WindowedRun
from lam_vllm.ops.reference import l2_distances
from lam_vllm.search import BandedSearch, ExhaustiveSearch, verify
from lam_vllm.search.banded import BAND_COORDINATES, EPS_OVER_SIGMA
from lam_vllm.types import Embedding
from tests.search.made import mixed_rows, unit

THRESHOLDS = (0.9, 0.95, 0.99)
SHAPES = st.tuples(st.sampled_from([1, 3, 33, 64]), st.sampled_from([1, 2, 4, 7, 100]))


def bands(row: Embedding, width: int, eps: float) -> list[tuple[int, ...]]:
    """The bands of a row, in words: its coordinates in steps of twice eps, halves to even, so many at a time."""
    step = float(np.float32(2 * eps))
    quanta = [round(float(np.float32(value / np.float32(step)))) for value in row]
    return [tuple(quanta[start : start + width]) for start in range(0, len(quanta), width)]


def agree(row: Embedding, query: Embedding, width: int, eps: float) -> bool:
    pairs = zip(bands(row, width, eps), bands(query, width, eps), strict=True)
    return any(ours == theirs for ours, theirs in pairs)


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=SHAPES,
    eps_over_sigma=st.sampled_from([0.01, 0.2, 1.0]),
    threshold_cos=st.sampled_from(THRESHOLDS),
)
def test_it_proposes_the_eligible_near_rows_that_agree_in_a_band(
    seed: int, shape: tuple[int, int], eps_over_sigma: float, threshold_cos: float
) -> None:
    dimension, width = shape
    query, rows = mixed_rows(seed, max(dimension, 2), threshold_cos, 8)
    eps = eps_over_sigma / sqrt(len(query))
    eligible = np.random.default_rng(seed).random(len(rows)) < 0.7
    search = BandedSearch(len(query), width, eps_over_sigma)

    places = [candidate.index for candidate in search.propose(rows, eligible, query, threshold_cos)]

    agreeing = {place for place, row in enumerate(rows) if agree(row, query, width, eps)}
    assert set(np.flatnonzero(search.agreeing(rows, query)).tolist()) == agreeing
    near = np.flatnonzero(eligible & (l2_distances(rows, query) <= delta_of(threshold_cos) + 1e-5)).tolist()
    assert places == sorted(set(places))
    assert set(near) & agreeing <= set(places) <= agreeing
    assert all(eligible[place] for place in places)


@pytest.mark.parametrize(("dimension", "width"), [(384, 4), (384, 5), (3, 4), (1, 1)])
def test_it_keeps_eight_bytes_a_band_and_the_last_band_may_be_shorter(dimension: int, width: int) -> None:
    search = BandedSearch(dimension, width)
    assert search.nbytes == 0
    search.agreeing(unit(np.random.default_rng(1).standard_normal((5, dimension))), unit(np.ones(dimension)))
    assert search.nbytes == 5 * 8 * ceil(dimension / width)


def test_equal_quanta_in_different_bands_do_not_agree() -> None:
    row, query = unit(np.array([1.0, 0.0, 0.0, 0.5])), unit(np.array([0.0, 0.5, 1.0, 0.0]))
    assert bands(row, 2, 0.1)[0] == bands(query, 2, 0.1)[1]
    assert not BandedSearch(4, 2, 0.2).agreeing(row[None], query).any()


def test_it_may_miss_and_says_so() -> None:
    query = unit(np.full(64, 1.0))
    moved = query + np.tile([0.026, -0.026], 32).astype(np.float32)  # every coordinate by more than a step of 0.05
    row = unit(moved.astype(np.float64))[None]
    everywhere = np.ones(1, np.bool_)
    assert ExhaustiveSearch().propose(row, everywhere, query, 0.95)
    assert BandedSearch(64).propose(row, everywhere, query, 0.95) == []
    assert not BandedSearch(64).complete
    assert ExhaustiveSearch().complete


def test_what_it_cannot_quantise_is_an_error() -> None:
    rows = np.full((1, 4), np.nan, np.float32)
    with pytest.raises(ValueError, match="nan at"):
        BandedSearch(4).propose(rows, np.ones(1, np.bool_), unit(np.ones(4)), 0.95)


def test_on_a_recorded_run_its_matches_are_matches_and_exhaustive_search_finds_no_later_one(
    recorded: tuple[WindowedRun, Embedding],
) -> None:
    _, rows = recorded
    found = 0
    search = BandedSearch(rows.shape[1])
    for place, query in enumerate(rows):
        before, eligible = rows[:place], np.ones(place, np.bool_)
        banded = verify(search.propose(before, eligible, query, 0.95), before, query, delta_of(0.95)).match
        exact = verify(ExhaustiveSearch().propose(before, eligible, query, 0.95), before, query, delta_of(0.95)).match
        if banded is not None:
            found += 1
            assert exact is not None
            assert exact.representative <= banded.representative
    assert found >= 10, "the run has near windows"


def test_the_papers_setting_is_the_default() -> None:
    """r = 4 and eps over sigma = 0.2: coordinates in steps of 0.4 sigma, four to a band."""
    dimension = 64
    sigma = 1 / sqrt(dimension)
    assert (EPS_OVER_SIGMA, BAND_COORDINATES) == (0.2, 4)
    row, query = np.full(dimension, 1.01 * sigma, np.float32), np.full(dimension, 1.35 * sigma, np.float32)
    # 1.01 and 1.35 are both 3 steps of 0.4 (from 1.0 to 1.4), and 5 and 7 of 0.2.
    assert BandedSearch(dimension).agreeing(row[None], query).all()
    assert not BandedSearch(dimension, eps_over_sigma=0.1).agreeing(row[None], query).any()
    row[:dimension:BAND_COORDINATES] = 0.1 * sigma  # one coordinate of each band
    assert not BandedSearch(dimension).agreeing(row[None], query).any()
    assert BandedSearch(dimension, band_coordinates=3).agreeing(row[None], query).any()
