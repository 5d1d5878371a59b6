"""One conversation in three APIs, and their streams read by example."""

from __future__ import annotations

from typing import Any

import pytest

from lam_vllm.errors import OptionError
from lam_vllm.evaluation.live.dialects import Usage, dialect

CALL = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "."}'}}
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "list"}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "a.py", "tool_call_id": "c1"},
    {"role": "assistant", "content": "again"},
    {"role": "tool", "content": "b.py"},
]


def test_chat_adds_only_the_call_id_that_is_missing() -> None:
    body = dialect("chat").body(CHAT, 8)
    assert body["messages"] == [*CHAT[:5], {**CHAT[5], "tool_call_id": "call_5"}]
    assert body["stream_options"] == {"include_usage": True}


def test_responses_turns_calls_and_results_into_items() -> None:
    assert dialect("responses").body(CHAT, 8)["input"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "list"},
        {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": '{"path": "."}'},
        {"type": "function_call_output", "call_id": "c1", "output": "a.py"},
        {"role": "assistant", "content": "again"},
        {"type": "function_call_output", "call_id": "call_5", "output": "b.py"},
    ]


def test_messages_turns_calls_and_results_into_blocks() -> None:
    body = dialect("messages").body(CHAT, 8)
    assert (body["system"], body["max_tokens"]) == ("Be brief.", 8)
    assert body["messages"] == [
        {"role": "user", "content": "list"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "ls", "input": {"path": "."}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "a.py"}]},
        {"role": "assistant", "content": "again"},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_5", "content": "b.py"}]},
    ]


@pytest.mark.parametrize(
    ("api", "event", "shows"),
    [
        ("chat", {"choices": [{"delta": {"role": "assistant", "content": ""}}]}, False),
        ("chat", {"choices": [{"delta": {"reasoning": "Hm"}}]}, True),
        ("chat", {"choices": [], "usage": {"prompt_tokens": 1}}, False),
        ("responses", {"type": "response.created", "response": {}}, False),
        ("responses", {"type": "response.output_text.delta", "delta": "Hi"}, True),
        ("messages", {"type": "content_block_start", "content_block": {"type": "text", "text": ""}}, False),
        ("messages", {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": "{"}}, True),
        ("messages", {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}, False),
    ],
)
def test_the_first_token_is_the_first_event_with_characters(api: str, event: dict[str, object], shows: bool) -> None:
    assert dialect(api).shows_text(event) is shows


@pytest.mark.parametrize(
    ("api", "event"),
    [
        ("chat", {"choices": [], "usage": {"prompt_tokens": 70, "prompt_tokens_details": {"cached_tokens": 64}}}),
        (
            "responses",
            {
                "type": "response.completed",
                "response": {"usage": {"input_tokens": 70, "input_tokens_details": {"cached_tokens": 64}}},
            },
        ),
        ("messages", {"type": "message_delta", "usage": {"input_tokens": 6, "cache_read_input_tokens": 64}}),
    ],
)
def test_prompt_tokens_include_the_cached_ones(api: str, event: dict[str, object]) -> None:
    assert dialect(api).usage(event) == Usage(70, 64)


def test_an_unknown_api_is_named() -> None:
    with pytest.raises(OptionError, match="api: 'soap' is not allowed; allowed: chat, responses, messages"):
        dialect("soap")
