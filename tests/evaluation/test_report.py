"""Figures over turns, on replays written down by hand."""

from __future__ import annotations

from rich.console import Console

from lam_vllm.evaluation.live.dialects import Usage
from lam_vllm.evaluation.live.replay import ReplayResult, Turn, prompts
from lam_vllm.evaluation.live.report import summarise, summary_table

REPORT = {"removed_tokens": {"l0": 30, "l1": 10}, "delta_hat": 0.2}
RESULT = ReplayResult(
    "some/run",
    off=(Turn(Usage(100, 0), 0.3), Turn(Usage(200, 96), 0.1), Turn(None), Turn(None)),
    on=(Turn(Usage(100, 0), 0.2), Turn(Usage(160, 96), None), Turn(Usage(190, 160), 0.1, REPORT), Turn(None)),
    prefix_breaks={},
)


def test_tokens_and_times_are_those_of_turns_that_both_sides_answered() -> None:
    total = summarise([RESULT])
    assert (total.turns, total.answered_in_both, total.rescued) == (4, 2, 1)
    assert (total.off.prompt_tokens, total.off.uncached_tokens) == (300, 204)
    assert (total.on.prompt_tokens, total.on.uncached_tokens) == (260, 164)
    assert total.off.ttft_p50_seconds == 0.2
    assert total.on.ttft_p50_seconds == 0.2  # the other turn showed no text


def test_removed_tokens_are_those_of_the_longest_answered_prompt() -> None:
    assert summarise([RESULT, RESULT]).removed_tokens == {"l0": 60, "l1": 20}
    assert summarise([RESULT]).delta_hat == 0.2


def test_breaks_are_added_up_by_cause() -> None:
    broken = ReplayResult("x", (), (), {"defect": 2})
    assert summarise([broken, broken, RESULT]).prefix_breaks == {"defect": 4}


def test_the_table_has_a_column_for_each_run_and_one_for_all() -> None:
    console = Console(width=100, record=True, file=None)
    with console.capture() as printed:
        console.print(summary_table([RESULT, ReplayResult("b", (), (), {"defect": 1})], "title"))
    text = printed.get()
    assert all(words in text for words in ("run", "all", "2 of 4", "defect 1", "uncached tokens, on", "0.200"))


def test_every_assistant_message_but_a_leading_one_is_a_turn() -> None:
    messages = [{"role": role} for role in ("assistant", "user", "assistant", "tool", "assistant", "tool")]
    assert [len(request) for request in prompts(messages)] == [2, 4]
