"""Duplicates by granularity: one example for each unit, and the order in which they must stand."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lam_vllm.encoders.base import Encoder
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.measures.duplicates import Duplicates, Granularity, duplicates
from lam_vllm.evaluation.score import observation_texts


def words(text: str) -> list[tuple[int, int]]:
    return [found.span() for found in re.finditer(r"\S+", text)]


def shares(*texts: str, window_tokens: int = 3) -> dict[Granularity, Duplicates]:
    return duplicates([texts], words, window_tokens)


def test_a_repeated_record_is_a_duplicate_at_every_granularity() -> None:
    assert shares("a b\nc d", "a b\nc d") == dict.fromkeys(("record", "paragraph", "window", "line"), Duplicates(8, 4))


def test_a_repeated_paragraph_is_none_of_a_record_nor_of_shifted_windows() -> None:
    found = shares("a b\nc d\n\ne", "x\n \t\na b\nc d")
    assert found["paragraph"] == Duplicates(10, 4)
    assert found["line"] == Duplicates(10, 4)
    assert found["record"] == found["window"] == Duplicates(10, 0)


def test_a_repeated_window_may_cross_lines() -> None:
    found = shares("a b\nc d e", "a b\nc z")
    assert found["window"] == Duplicates(9, 3)
    assert found["line"] == Duplicates(9, 2)


def test_a_line_may_repeat_within_one_record() -> None:
    found = shares("a b\na b\nc")
    assert (found["line"].share, found["record"].share) == (0.4, 0.0)


def test_runs_are_compared_with_themselves_only() -> None:
    assert duplicates([["a b"], ["a b"]], words)["record"] == Duplicates(4, 0)
    assert duplicates([["a b", "a b"], ["a b"]], words)["record"] == Duplicates(6, 2)


def test_of_nothing_nothing_is_a_duplicate() -> None:
    assert duplicates([[], [""]], words)["line"].share == 0.0


def test_a_window_has_at_least_one_token() -> None:
    with pytest.raises(ValueError, match="budget: 0 is not allowed"):
        shares("a", window_tokens=0)


LINES = st.sampled_from(["", " ", "a", "a b", "b c d"])
TEXTS = st.lists(st.lists(LINES, max_size=8).map("\n".join), max_size=5)


@settings(deadline=None)
@given(TEXTS)
def test_finer_units_hold_at_least_the_duplicates_of_coarser_ones(texts: list[str]) -> None:
    found = {name: unit.duplicate_tokens for name, unit in shares(*texts).items()}
    assert found["record"] <= found["paragraph"] <= found["line"]
    assert found["record"] <= found["window"]
    assert {unit.tokens for unit in shares(*texts).values()} == {sum(len(words(text)) for text in texts)}


def test_on_recorded_runs_lines_repeat_far_more_than_records(swesmith_runs: list[Run], encoder: Encoder) -> None:
    found = duplicates([observation_texts(run.messages) for run in swesmith_runs], encoder.token_offsets)
    assert 0 < found["record"].share < found["line"].share
    assert 100 * found["line"].share == pytest.approx(13.86, abs=0.05)
