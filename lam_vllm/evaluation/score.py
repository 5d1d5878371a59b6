"""What one method does to one run, measured: the row of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import process_time
from typing import Any, TypeAlias

from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.evidence import distinct_lines, gold_lines
from lam_vllm.evaluation.method import Method
from lam_vllm.evaluation.rows import Row
from lam_vllm.messages import is_observation, observed_texts
from lam_vllm.types import Message

TokenCounter: TypeAlias = Callable[[str], int]
Clock: TypeAlias = Callable[[], float]
"""CPU seconds, of which only differences mean anything."""


def score(method: Method, run: Run, count_tokens: TokenCounter, cpu_seconds: Clock = process_time) -> Row:
    """The counts of `method` on `run`.

    Time is what `cpu_seconds` shows across `shorten`: the CPU time of this process, of all its threads. What a server
    elsewhere computes is not in it.

    Raises:
        ValueError: the method did not return as many messages as the run has.
        Whatever the method raises.
    """
    began = cpu_seconds()
    messages = method.shorten(run)
    ended = cpu_seconds()
    if len(messages) != len(run.messages):
        raise ValueError(f"{method.name}: {len(messages)} messages of {len(run.messages)} came back for {run.id}")
    before = [count_tokens(text) for text in observation_texts(run.messages)]
    return Row(
        method=method.name,
        setting=method.setting,
        seed=method.seed,
        source=run.source,
        run=run.id,
        resolved=run.resolved,
        has_gold=run.gold_patch is not None,
        observations=len(before),
        observation_tokens=sum(before),
        emitted_tokens=sum(count_tokens(text) for text in observation_texts(messages)),
        cpu_ms=round(1e3 * (ended - began), 2),
        **_evidence(run, messages, method.verbatim),
    )


def observation_texts(messages: Sequence[Message], observations: str = "tool") -> list[str]:
    """The texts of all tool results, part by part; which messages are some, `observations` says as in the config."""
    return [
        observation.text
        for index in range(len(messages))
        if is_observation(messages, index, observations)
        for observation in observed_texts(messages, index, 0, ())[0]
    ]


def _evidence(run: Run, messages: Sequence[Message], verbatim: bool) -> dict[str, Any]:
    """Gold and line counts; of text that was written anew, only what there was to keep."""
    if not verbatim:
        messages = run.messages
    gold, lines = gold_lines(run.messages, messages, run.gold_patch or ""), distinct_lines(run.messages, messages)
    return {
        "gold_witnessed": gold.witnessed,
        "gold_kept": gold.kept if verbatim else None,
        "gold_relaxed": gold.relaxed if verbatim else None,
        "distinct_lines": lines.distinct,
        "readable_lines": lines.readable if verbatim else None,
        "lines_in_parts": lines.in_parts if verbatim else None,
        "long_words": lines.long_distinct,
        "readable_words": lines.long_readable if verbatim else None,
    }
