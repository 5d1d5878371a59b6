"""`max_reference_distance_tokens`: a bound on the distance from where a target begins, and a pure one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lam_vllm import Compactor, CompactorConfig

BLOCK = "\n".join(f"{n}: statement number {n} of the module assigns value_{n}" for n in range(20))
FILLER = "\n".join(f"an unrelated line with the number {n * n}" for n in range(400))


def tool(text: str) -> dict[str, Any]:
    return {"role": "tool", "content": text}


@pytest.fixture
def make(count_tokens: Callable[[str], int]) -> Callable[[int | None], Compactor]:
    return lambda limit: Compactor(CompactorConfig(profile="exact", max_reference_distance_tokens=limit), count_tokens)


def test_the_distance_is_measured_from_where_the_target_begins(make: Callable[[int | None], Compactor]) -> None:
    messages = [tool(BLOCK + "\n" + FILLER), tool(BLOCK)]
    assert make(None).compact(messages).changed
    compaction = make(1_000).compact(messages)
    assert not compaction.changed
    assert compaction.report.reasons["too_far"] == 1


@pytest.mark.parametrize(
    "between",
    [
        {"role": "user", "content": FILLER},
        {"role": "assistant", "content": None, "reasoning": FILLER},
        {"role": "assistant", "content": "", "reasoning_content": FILLER},
        {"role": "user", "content": [{"type": "text", "text": FILLER}]},
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "write", "arguments": FILLER}}]},
    ],
    ids=["text", "reasoning", "reasoning_content", "part", "arguments"],
)
def test_everything_a_template_prints_in_between_counts(
    make: Callable[[int | None], Compactor], between: dict[str, Any]
) -> None:
    messages = [tool(BLOCK), between, tool(BLOCK)]
    assert not make(1_500).compact(messages).changed
    assert make(40_000).compact(messages).changed


def test_spelling_of_arguments_does_not_decide(make: Callable[[int | None], Compactor]) -> None:
    def messages(arguments: str) -> list[dict[str, Any]]:
        call = {"id": "1", "function": {"name": "write", "arguments": arguments}}
        return [tool(BLOCK), {"role": "assistant", "tool_calls": [call]}, tool(BLOCK)]

    dense, wide = '{"a":[1,2,3]}', '{ "a" : [ 1 , 2 , 3 ] }' + " " * 400
    for limit in range(600, 1_000, 40):
        warm = make(limit)
        first = warm.compact(messages(dense))
        assert warm.compact(messages(wide)).decisions == first.decisions
        assert make(limit).compact(messages(wide)).decisions == first.decisions
