"""Recorded runs as turns: what arrives, what is answered, what goes, and where the first change stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lam_vllm.evaluation.baselines.none import NoCompaction
from lam_vllm.evaluation.baselines.profiles import ProfileMethod
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.score import score
from lam_vllm.evaluation.turns import turns_of
from lam_vllm.performance_model.workload import Turn, without_removal


def words(text: str) -> int:
    return len(text.split())


class Replace:
    """A method that puts texts in place of those of some messages."""

    name, setting, seed, verbatim = "replace", "", 0, True

    def __init__(self, texts: dict[int, str]) -> None:
        self._texts = texts

    def shorten(self, run: Run) -> list[Any]:
        return [
            {**message, "content": self._texts.get(place, message["content"])}
            for place, message in enumerate(run.messages)
        ]


def talk(*messages: tuple[str, str]) -> Run:
    return Run("by hand", "agent", tuple({"role": role, "content": content} for role, content in messages))


RUN = talk(
    ("system", "be good"),
    ("user", "do it now"),
    ("assistant", "I look"),
    ("tool", "a b c d e"),
    ("tool", "f g"),
    ("assistant", "done"),
    ("tool", "never answered"),
)


def test_turns_by_hand() -> None:
    assert turns_of(RUN, NoCompaction(), words) == (Turn(5, 2, other_tokens=5), Turn(7, 1))


def test_what_goes_and_what_lies_behind_it() -> None:
    first, second = turns_of(RUN, Replace({3: "a b X", 6: ""}), words)
    assert first == Turn(5, 2, other_tokens=5)
    assert second == Turn(7, 1, removed_tokens=2, stale_tokens=1 + 2 + 1), "X, f g, and the answer"


def test_a_longer_text_has_removed_nothing() -> None:
    assert turns_of(RUN, Replace({3: "a b c d e f"}), words)[1] == Turn(7, 1)


def test_a_run_that_begins_with_an_answer_has_no_turn_for_it() -> None:
    assert turns_of(talk(("assistant", "hello"), ("user", "hi")), NoCompaction(), words) == ()
    assert turns_of(talk(("assistant", "hello"), ("user", "hi"), ("assistant", "yes")), NoCompaction(), words) == (
        Turn(2, 1, other_tokens=2),
    )


def test_an_empty_answer_to_nothing_new_is_no_turn() -> None:
    """One to something new is: that was prefilled."""
    run = talk(("user", "hi there"), ("assistant", "a"), ("assistant", ""), ("tool", "b"), ("assistant", ""))
    assert turns_of(run, NoCompaction(), words) == (Turn(2, 1, other_tokens=2), Turn(1, 0))


def test_tool_output_in_user_messages_is_tool_output_when_asked_for() -> None:
    run = talk(("user", "do it"), ("assistant", "ls"), ("user", "a b c"), ("assistant", "done"))
    assert turns_of(run, NoCompaction(), words)[1] == Turn(3, 1, other_tokens=3)
    first, second = turns_of(run, NoCompaction(), words, observations="tool+user")
    assert (first.other_tokens, second) == (2, Turn(3, 1))


def test_turns_hold_what_the_scorer_counts(six_runs: list[Run], count_tokens: Callable[[str], int]) -> None:
    """Up to the last answer: what comes behind it is no turn."""
    method = ProfileMethod("exact", count_tokens)
    for whole in six_runs:
        last = max(place for place, message in enumerate(whole.messages) if message["role"] == "assistant")
        run = replace(whole, messages=whole.messages[: last + 1])
        turns, row = turns_of(run, method, count_tokens), score(method, run, count_tokens)
        assert turns == turns_of(whole, method, count_tokens)
        assert sum(turn.observed_tokens for turn in turns) == row.observation_tokens
        assert sum(turn.removed_tokens for turn in turns) == row.observation_tokens - row.emitted_tokens
        assert without_removal(turns) == turns_of(run, NoCompaction(), count_tokens)
