"""Quanta and band digests as numpy defines them: against plain Python integers, their laws, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lam_vllm.ops.reference import band_digests, band_quanta, quanta_step

SEED, MASK = 0x9E3779B97F4A7C15, 2**64 - 1
GOLDEN_ROW = [0.0, 0.1, -0.1, 0.3, -0.0, 1.0, -1.0]
GOLDEN = ["0xb6a2c0af37d3c907", "0x3b0d67d7810c5543", "0x15bfa153dffd80f8"]


def rows_of(*values: float) -> NDArray[np.float32]:
    return np.array([values], dtype=np.float32)


def plain_mix(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def plain_digests(quanta: list[int], width: int) -> list[int]:
    digests = []
    for band, start in enumerate(range(0, len(quanta), width)):
        digest = plain_mix(SEED ^ band)
        for quantum in quanta[start : start + width]:
            digest = plain_mix(digest ^ quantum % 2**32)
        digests.append(digest)
    return digests


@given(
    st.lists(st.floats(-(2.0**20), 2.0**20, width=32), min_size=0, max_size=70),
    st.floats(2.0**-10, 4.0),
    st.integers(1, 80),
)
def test_digests_and_quanta_equal_plain_integers(values: list[float], eps: float, width: int) -> None:
    step = np.float32(2 * eps)
    expected = [round(float(np.float32(value) / step)) for value in values]  # round() takes halves to even
    assert band_quanta(rows_of(*values), eps).tolist() == [expected]
    assert band_digests(rows_of(*values), eps, width).tolist() == [plain_digests(expected, width)]


def test_digests_have_the_golden_bits() -> None:
    digests = band_digests(rows_of(*GOLDEN_ROW), 0.05, 3)
    assert digests.dtype == np.uint64
    assert [hex(digest) for digest in digests[0].tolist()] == GOLDEN


def test_halves_go_to_the_even_quantum() -> None:
    assert band_quanta(rows_of(0.5, 1.5, 2.5, -0.5, -1.5), 0.5).tolist() == [[0, 2, 2, 0, -2]]


@given(st.floats(-100, 100, width=32), st.floats(-100, 100, width=32), st.floats(2.0**-8, 2.0))
def test_values_within_eps_are_at_most_one_quantum_apart(a: float, b: float, eps: float) -> None:
    first, second = band_quanta(rows_of(a, b), eps)[0].tolist()
    if abs(a - b) <= eps:
        assert abs(first - second) <= 1
    if first == second:
        assert abs(a - b) <= 2 * eps * (1 + 2.0**-10)


def test_equal_bands_at_different_places_have_different_digests() -> None:
    assert len(set(band_digests(np.zeros((1, 384), np.float32), 0.01, 4)[0].tolist())) == 96


def test_rows_are_digested_apart_in_any_memory_layout() -> None:
    rows = np.random.default_rng(1).standard_normal((5, 37)).astype(np.float32)
    expected = band_digests(rows, 0.1, 4)
    assert expected.shape == (5, 10)
    assert (band_digests(np.asfortranarray(rows), 0.1, 4) == expected).all()
    assert (np.concatenate([band_digests(row[None], 0.1, 4) for row in rows]) == expected).all()


@pytest.mark.parametrize(("shape", "bands"), [((0, 8), 2), ((3, 0), 0), ((0, 0), 0)])
def test_empty_matrices_have_no_digests(shape: tuple[int, int], bands: int) -> None:
    assert band_digests(np.zeros(shape, np.float32), 0.1, 4).shape == (shape[0], bands)


def test_subnormal_values_and_steps_are_allowed() -> None:
    tiny = math.ldexp(1, -149)
    assert band_quanta(rows_of(tiny, -3 * tiny, 0), tiny).tolist() == [[0, -2, 0]]


@pytest.mark.parametrize("eps", [0.0, -0.1, math.nan, math.inf, 1e39, 1e-60])
def test_an_eps_without_a_step_is_refused(eps: float) -> None:
    with pytest.raises(ValueError, match="eps: .* is not allowed; allowed: a positive number"):
        quanta_step(eps)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 2.0**31, -(2.0**31), 3e38])
def test_values_without_a_quantum_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"rows: .* at \(0, 1\) is not allowed; allowed: finite values below 2\^31"):
        band_quanta(rows_of(0, value), 0.5)


def test_the_largest_quantum_below_the_limit_is_kept() -> None:
    assert band_quanta(rows_of(2147483520, -2147483520), 0.5).tolist() == [[2147483520, -2147483520]]


def test_other_inputs_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="width: 0 is not allowed; allowed: at least 1"):
        band_digests(rows_of(0), 0.1, 0)
    with pytest.raises(ValueError, match=r"rows: shape \(1, 1\) of float64"):
        band_quanta(np.zeros((1, 1)), 0.1)  # type: ignore[arg-type]
