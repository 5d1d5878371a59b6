"""Bins of runs by the size of their tool output."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lam_vllm.evaluation.measures.by_size import SizeBin, by_size
from lam_vllm.evaluation.measures.gold import NOTHING_SHOWN

from .made_rows import row


def test_runs_fall_between_powers_of_two_and_are_pooled_there() -> None:
    rows = [
        row("a", observation_tokens=1_024, emitted_tokens=1_024),
        row("b", observation_tokens=1_023, emitted_tokens=500),
        row("c", observation_tokens=2_047, emitted_tokens=512),
        row("d", observation_tokens=0, emitted_tokens=0),
    ]
    assert by_size(rows) == [
        SizeBin(0, 1, 1, NOTHING_SHOWN),
        SizeBin(512, 1_024, 1, 1 - 500 / 1_023),
        SizeBin(1_024, 2_048, 2, 1 - 1_536 / 3_071),
    ]


@settings(deadline=None)
@given(st.lists(st.integers(0, 10**6)))
def test_every_run_is_in_one_bin(sizes: list[int]) -> None:
    bins = by_size(row(str(place), observation_tokens=size) for place, size in enumerate(sizes))
    assert [found.runs for found in bins] == [
        sum(found.least_tokens <= size < found.below_tokens for size in sizes) for found in bins
    ]
    assert sum(found.runs for found in bins) == len(sizes)
