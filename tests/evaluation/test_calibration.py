"""The t and the guard band that runs speak for, on rows and texts small enough to check by eye."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lam_vllm.encoders.base import BatchEncoder, Pass
from lam_vllm.encoders.two_pass import choose_pass, measure_band
from lam_vllm.errors import OptionError
from lam_vllm.evaluation.calibration import (
    GOLD_FLOOR,
    LINE_FLOOR,
    Band,
    Floors,
    grid,
    measure_bands,
    propose_band,
    propose_threshold,
    sample_texts,
)
from lam_vllm.evaluation.calibration_tables import source_table, threshold_table
from lam_vllm.evaluation.rows import Row
from tests.evaluation.made_rows import row

GRID = (0.99, 0.95, 0.9)
TEXTS = ["def connect(host, port):", "PASSED tests/test_a.py::test_one\n" * 5, "3 failed, 10 passed in 2.13s"]


def l1(threshold_cos: float, lines: int, **changes: Any) -> Row:
    """A run that shows 1,000 distinct lines, of which L1 leaves `lines`."""
    shown = {"distinct_lines": 1000, "readable_lines": lines, **changes}
    return row(method="l1", setting=f"t={threshold_cos:g}", **shown)


def proposed(*lines: int, floor: float = 0.9) -> float | None:
    return propose_threshold([l1(t, kept) for t, kept in zip(GRID, lines, strict=True)], GRID, Floors(floor, 0))


def test_the_lowest_t_that_keeps_the_floor_is_proposed() -> None:
    assert proposed(1000, 900, 899) == 0.95
    assert proposed(1000, 990, 980) == 0.9
    assert proposed(900, 899, 898) == 0.99


def test_a_t_below_one_that_loses_too_much_is_not_trusted() -> None:
    assert proposed(1000, 899, 1000) == 0.99


def test_nothing_is_proposed_where_the_highest_t_loses_too_much() -> None:
    assert proposed(899, 950, 1000) is None


def test_gold_lines_have_a_floor_of_their_own_where_there_are_any() -> None:
    kept = {"gold_witnessed": 1000, "gold_kept": 1000}
    rows = [l1(0.99, 1000, **kept), l1(0.95, 1000, **kept), l1(0.9, 1000, **{**kept, "gold_kept": 998})]
    assert propose_threshold(rows, GRID, Floors()) == 0.95
    assert propose_threshold(rows, GRID, Floors(gold=0.998)) == 0.9
    without = [replace(each, gold_witnessed=0, gold_kept=0) for each in rows]
    assert propose_threshold(without, GRID, Floors()) == 0.9


def test_runs_count_by_their_lines_and_other_profiles_do_not_count() -> None:
    rows = [
        l1(0.99, 1000),
        l1(0.99, 0, run="b", distinct_lines=10),
        row(method="paper", setting="t=0.99", readable_lines=0),
    ]
    assert propose_threshold(rows, GRID[:1], Floors(0.99, 0)) == 0.99  # 1000 of 1010
    assert propose_threshold(rows, GRID[:1], Floors(0.995, 0)) is None


def test_words_speak_where_every_line_is_too_long() -> None:
    words = zip(GRID, (100, 99, 80), strict=True)
    rows = [l1(t, 0, distinct_lines=0, long_words=100, readable_words=kept) for t, kept in words]
    assert propose_threshold(rows, GRID, Floors(0.9, 0)) == 0.95


def test_without_tool_output_nothing_is_proposed() -> None:
    empty = [l1(t, 0, distinct_lines=0) for t in GRID]
    assert propose_threshold(empty, GRID, Floors(0, 0)) is None


@given(st.lists(st.integers(0, 1000), min_size=3, max_size=3), st.floats(0, 1), st.floats(0, 1))
def test_asking_for_more_never_lowers_t(lines: list[int], one: float, other: float) -> None:
    lax, strict = (proposed(*lines, floor=floor) for floor in sorted((one, other)))
    assert strict is None or (lax is not None and lax <= strict)


def test_a_grid_is_descending_without_repeats() -> None:
    assert grid([0.9, 0.99, 0.9, 0.9000000001]) == (0.99, 0.9)
    assert grid([1]) == (1.0,)


@pytest.mark.parametrize("threshold", [0.0, -0.5, 1.01, float("nan")])
def test_a_grid_has_cosines_only(threshold: float) -> None:
    with pytest.raises(OptionError, match="threshold: .* allowed: a number above 0 and at most 1"):
        grid([0.9, threshold])


@given(st.lists(st.text(), max_size=12), st.randoms(use_true_random=False), st.integers(1, 12))
def test_a_sample_depends_on_the_texts_alone(texts: list[str], random: Random, count: int) -> None:
    shuffled = [*texts, *texts]
    random.shuffle(shuffled)
    sample = sample_texts(shuffled, count)
    assert sample == sample_texts(texts, count)
    assert len(sample) == min(count, len(set(texts))) == len(set(sample)) and set(sample) <= set(texts)


def test_the_band_covers_whichever_way_is_chosen(encoder: BatchEncoder) -> None:
    bands = measure_bands(encoder, TEXTS)
    assert [band.way for band in bands] == [way for way in encoder.passes() if not way.canonical]
    assert all(band.largest_difference == measure_band(encoder, band.way, TEXTS) for band in bands)
    assert choose_pass(encoder, TEXTS).guard_band <= propose_band(bands) < 0.1


def test_the_widest_way_decides_the_band() -> None:
    def of(*differences: float) -> float:
        return propose_band([Band(Pass("way", "bf16", 8), difference) for difference in differences])

    assert of(0.001, 0.003, 0.002) == of(0.003) > 2 * 0.003 - 1e-12
    assert of() == 0.0


def rows_of(source: str, *lines: int) -> Sequence[Row]:
    return [
        replace(each, source=source, method=method)
        for method in ("l1", "paper", "guarded")
        for each in (l1(t, kept, gold_witnessed=0, gold_kept=0) for t, kept in zip(GRID, lines, strict=True))
    ]


def test_tables_show_every_t_and_each_source_by_itself() -> None:
    rows = [*rows_of("code", 1000, 1000, 990), *rows_of("json", 970, 960, 500)]
    first, *_ = threshold_table(rows, GRID).json()
    assert (first["threshold_cos"], first["l1_lines_kept"], first["guarded_lines_kept"]) == (0.99, 0.985, 0.985)
    assert first["paper_gold_kept"] == "not measurable: no run shows a line of its gold patch"
    code, json = source_table(rows, GRID, Floors()).json()
    assert (code["threshold_cos"], code["l1_lines_kept"]) == (0.9, 1.0)
    assert (json["threshold_cos"], json["l1_lines_kept"]) == (None, 0.96)  # at 0.95, which is proposed for both


def test_the_floors_are_those_of_the_recorded_runs() -> None:
    """97 runs of mini-swe-agent: t = 0.94 keeps 52,069 of 53,358 lines and all gold, t = 0.92 51,503 and 1,226."""
    at_94 = l1(0.94, 52_069, distinct_lines=53_358, gold_witnessed=1228, gold_kept=1228)
    at_92 = l1(0.92, 51_503, distinct_lines=53_358, gold_witnessed=1228, gold_kept=1226)
    kept = [
        Floors(lines, gold).kept_by([each])
        for lines, gold in ((LINE_FLOOR, 0), (0, GOLD_FLOOR))
        for each in (at_94, at_92)
    ]
    assert kept == [True, False, True, False]
