"""The row of one run under one method, on runs small enough to count by eye and on recorded ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lam_vllm import Compactor, CompactorConfig
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.score import observation_texts, score

PATCH = "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n first line\n-second line\n+another line\n"
RUN = Run(
    "a",
    "agent",
    (
        {"role": "user", "content": "first line"},
        {"role": "tool", "content": "first line\nthird line"},
        {"role": "tool", "content": [{"type": "text", "text": "second line"}, {"type": "image_url"}]},
        {"role": "tool", "content": "third line\nthird line"},
    ),
    PATCH,
    True,
)


class Cutting:
    """Puts `text` in place of the content of the messages numbered `places`."""

    name, setting, seed = "cutting", "", 0

    def __init__(self, text: str, *places: int, verbatim: bool = True) -> None:
        self.text, self.places, self.verbatim = text, places, verbatim

    def shorten(self, run: Run) -> list[Any]:
        return [
            {**message, "content": self.text} if place in self.places else message
            for place, message in enumerate(run.messages)
        ]


class Exact:
    name, setting, seed, verbatim = "exact", "", 0, True

    def __init__(self, count_tokens: Callable[[str], int]) -> None:
        self.compactor = Compactor(CompactorConfig(profile="exact"), count_tokens)

    def shorten(self, run: Run) -> list[Any]:
        return self.compactor.compact(run.messages, use_memo=False).messages


def words(text: str) -> int:
    return len(text.split())


def test_what_is_kept_and_lost_is_counted() -> None:
    row = score(Cutting("third line", 1, 3), RUN, words)
    assert (row.method, row.setting, row.seed, row.source, row.run) == ("cutting", "", 0, "agent", "a")
    assert (row.resolved, row.has_gold) == (True, True)
    assert (row.observations, row.observation_tokens, row.emitted_tokens) == (3, 10, 6)
    assert (row.gold_witnessed, row.gold_kept, row.gold_relaxed) == (2, 1, 1)
    assert (row.distinct_lines, row.readable_lines) == (3, 2)


def test_keeping_everything_loses_nothing() -> None:
    row = score(Cutting(""), RUN, words)
    assert row.emitted_tokens == row.observation_tokens and row.gold_kept == row.gold_witnessed
    assert row.readable_lines == row.distinct_lines


def test_new_text_is_not_judged_by_its_lines() -> None:
    row = score(Cutting("a summary", 1, verbatim=False), RUN, words)
    assert (row.gold_kept, row.gold_relaxed, row.readable_lines, row.readable_words) == (None,) * 4
    assert (row.gold_witnessed, row.distinct_lines, row.emitted_tokens) == (2, 3, 8)


def test_long_lines_are_judged_by_their_words() -> None:
    long = Run("b", "agent", ({"role": "tool", "content": "alpha beta gamma " * 200},))
    assert score(Cutting("alpha"), long, words).long_words == 3
    row = score(Cutting("alpha\nbeta", 0), long, words)
    assert (row.distinct_lines, row.long_words, row.readable_words, row.has_gold) == (0, 3, 2, False)


def test_references_are_paid_for(count_tokens: Callable[[str], int], six_runs: list[Run]) -> None:
    for run in six_runs:
        compaction = Exact(count_tokens).compactor.compact(run.messages, use_memo=False)
        row = score(Exact(count_tokens), run, count_tokens)
        texts = observation_texts(compaction.messages)
        assert row.emitted_tokens == sum(map(count_tokens, texts)) <= row.observation_tokens
        assert (
            any(decision.stub in text for decision in compaction.decisions for text in texts) or not compaction.changed
        )
        assert row.readable_lines == row.distinct_lines and row.gold_kept == row.gold_witnessed


def test_tool_output_in_user_messages_is_shown_when_asked_for() -> None:
    messages = [{"role": "assistant", "content": "ls"}, {"role": "user", "content": "a.py"}, RUN.messages[1]]
    assert observation_texts(messages) == ["first line\nthird line"]
    assert observation_texts(messages, "tool+user") == ["a.py", "first line\nthird line"]


def test_time_is_what_the_given_clock_shows() -> None:
    ticks: Iterator[float] = iter((2.0, 2.5))
    assert score(Cutting(""), RUN, words, lambda: next(ticks)).cpu_ms == 500.0


def test_a_method_that_loses_a_message_is_refused() -> None:
    class Losing(Cutting):
        def shorten(self, run: Run) -> list[Any]:
            return list(run.messages[1:])

    with pytest.raises(ValueError, match="cutting: 3 messages of 4 came back for a"):
        score(Losing(""), RUN, words)
