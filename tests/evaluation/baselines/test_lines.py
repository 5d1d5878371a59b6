"""None, L0 and masking by example."""

from __future__ import annotations

import pytest

from lam_vllm.errors import OptionError
from lam_vllm.evaluation.baselines.l0 import RepeatedLines
from lam_vllm.evaluation.baselines.masking import ObservationMasking
from lam_vllm.evaluation.baselines.none import NoCompaction
from lam_vllm.evaluation.corpus import Run
from tests.evaluation.baselines.hand_made import results_of, run_of


def test_no_compaction_changes_nothing() -> None:
    run = run_of("a\nb", "a\nb")
    assert NoCompaction().shorten(run) == list(run.messages)


def test_a_repeated_line_goes_without_a_trace_and_the_first_stays() -> None:
    run = run_of("{\n  one\n}", "{\n  two\n}", "  one\n  three")
    assert results_of(RepeatedLines().shorten(run)) == ["{\n  one\n}", "  two", "  three"]


def test_of_an_observation_that_only_repeats_the_first_line_with_text_stays() -> None:
    run = run_of("\na\nb", "\nb\na", "b")
    assert results_of(RepeatedLines().shorten(run)) == ["\na\nb", "b", "b"]


def test_blank_observations_stay_as_they_are() -> None:
    run = run_of("\n\n", "", "\n\n")
    assert results_of(RepeatedLines().shorten(run)) == ["\n\n", "", "\n\n"]


def test_stub_lines_of_another_layer_repeat_nothing() -> None:
    run = run_of("a", "[like window 1 of result 1]", "[like window 1 of result 1]\na\nb")
    assert results_of(RepeatedLines().shorten(run)) == [
        "a",
        "[like window 1 of result 1]",
        "[like window 1 of result 1]\nb",
    ]


def test_masking_keeps_the_last_results_and_counts_the_lines_of_the_others() -> None:
    run = run_of("a\nb\nc", "d", "", "e\nf")
    assert results_of(ObservationMasking(1).shorten(run)) == [
        "[old tool output: 3 lines left out]",
        "[old tool output: 1 line left out]",
        "",
        "e\nf",
    ]


def test_masking_counts_results_not_their_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b\nc"}]
    run = Run("parts", "hand", ({"role": "tool", "content": parts}, {"role": "tool", "content": "d"}))
    first, second = ObservationMasking(1).shorten(run)
    assert [part["text"] for part in first["content"]] == [
        "[old tool output: 1 line left out]",
        "[old tool output: 2 lines left out]",
    ]
    assert second["content"] == "d"


@pytest.mark.parametrize("keep", [2, 3, 50])
def test_masking_leaves_runs_of_few_results_alone(keep: int) -> None:
    run = run_of("a", "b")
    assert ObservationMasking(keep).shorten(run) == list(run.messages)


def test_a_negative_number_of_results_is_refused() -> None:
    with pytest.raises(OptionError, match="masking k: -1 is not allowed"):
        ObservationMasking(-1)
