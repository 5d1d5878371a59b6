"""One conversation in the words of three APIs, and what their streams say about the first token and the prompt."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from lam_vllm.errors import OptionError
from lam_vllm.types import Message

ApiName = Literal["chat", "responses", "messages"]
Event: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a prompt, and how many of them vLLM had in its cache."""

    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Dialect:
    """An API: where requests go, what they look like, and how its stream events are read.

    `body` makes a request's fields out of messages and the most tokens to answer with; `shows_text` tells whether an
    event carries text, reasoning or tool-call characters; `usage` reads the prompt's tokens where an event has them.
    """

    path: str
    body: Callable[[Sequence[Message], int], dict[str, Any]]
    shows_text: Callable[[Event], bool]
    usage: Callable[[Event], Usage | None]


def dialect(api: str) -> Dialect:
    """The API called `api`.

    Raises:
        OptionError: there is none of this name.
    """
    if api not in get_args(ApiName):
        raise OptionError("api", api, ", ".join(get_args(ApiName)))
    return _DIALECTS[api]


def _chat_body(messages: Sequence[Message], max_tokens: int) -> dict[str, Any]:
    return {
        "messages": [_with_call_id(message, index) for index, message in enumerate(messages)],
        "max_tokens": max_tokens,
        "stream_options": {"include_usage": True},
    }


def _with_call_id(message: Message, index: int) -> Message:
    """Recorded results often lack the call id that clients must send; one made of the position stays the same."""
    if message.get("role") != "tool" or "tool_call_id" in message:
        return message
    return {**message, "tool_call_id": f"call_{index}"}


def _chat_shows_text(event: Event) -> bool:
    deltas = [choice.get("delta") or {} for choice in event.get("choices") or ()]
    return any(
        delta.get(key) for delta in deltas for key in ("content", "reasoning", "reasoning_content", "tool_calls")
    )


def _openai_usage(usage: Any, prompt: str, details: str) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    return Usage(usage[prompt], (usage.get(details) or {}).get("cached_tokens") or 0)


def _chat_usage(event: Event) -> Usage | None:
    return _openai_usage(event.get("usage"), "prompt_tokens", "prompt_tokens_details")


def _responses_body(messages: Sequence[Message], max_tokens: int) -> dict[str, Any]:
    items = [item for index, message in enumerate(messages) for item in _response_items(message, index)]
    return {"input": items, "max_output_tokens": max_tokens, "store": False}


def _response_items(message: Message, index: int) -> list[dict[str, Any]]:
    content = _text(message)
    if message["role"] == "tool":
        call_id = message.get("tool_call_id", f"call_{index}")
        return [{"type": "function_call_output", "call_id": call_id, "output": content}]
    spoken = [{"role": message["role"], "content": content}] if content else []
    calls = [
        {
            "type": "function_call",
            "call_id": call["id"],
            "name": call["function"]["name"],
            "arguments": call["function"]["arguments"],
        }
        for call in message.get("tool_calls") or ()
    ]
    return spoken + calls


def _responses_shows_text(event: Event) -> bool:
    return str(event.get("type", "")).endswith(".delta") and bool(event.get("delta"))


def _responses_usage(event: Event) -> Usage | None:
    if event.get("type") not in ("response.completed", "response.incomplete"):
        return None
    return _openai_usage(event["response"].get("usage"), "input_tokens", "input_tokens_details")


def _messages_body(messages: Sequence[Message], max_tokens: int) -> dict[str, Any]:
    system = [_text(message) for message in messages if message["role"] == "system"]
    turns = [
        {"role": "assistant" if message["role"] == "assistant" else "user", "content": _blocks(message, index)}
        for index, message in enumerate(messages)
        if message["role"] != "system"
    ]
    return {"messages": turns, "max_tokens": max_tokens, **({"system": "\n\n".join(system)} if system else {})}


def _blocks(message: Message, index: int) -> str | list[dict[str, Any]]:
    content = _text(message)
    if message["role"] == "tool":
        call_id = message.get("tool_call_id", f"call_{index}")
        return [{"type": "tool_result", "tool_use_id": call_id, "content": content}]
    calls = message.get("tool_calls")
    if not calls:
        return content
    text = [{"type": "text", "text": content}] if content else []
    return text + [
        {
            "type": "tool_use",
            "id": call["id"],
            "name": call["function"]["name"],
            "input": json.loads(call["function"]["arguments"] or "{}"),
        }
        for call in calls
    ]


def _messages_shows_text(event: Event) -> bool:
    delta = event.get("delta") or {}
    return event.get("type") == "content_block_delta" and any(
        delta.get(key) for key in ("text", "thinking", "partial_json")
    )


def _messages_usage(event: Event) -> Usage | None:
    usage = event.get("usage") if event.get("type") == "message_delta" else None
    if not isinstance(usage, dict):
        return None
    cached = usage.get("cache_read_input_tokens") or 0
    return Usage(usage["input_tokens"] + cached + (usage.get("cache_creation_input_tokens") or 0), cached)


def _text(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if isinstance(part.get("text"), str))
    return content or ""


_DIALECTS = {
    "chat": Dialect("/v1/chat/completions", _chat_body, _chat_shows_text, _chat_usage),
    "responses": Dialect("/v1/responses", _responses_body, _responses_shows_text, _responses_usage),
    "messages": Dialect("/v1/messages", _messages_body, _messages_shows_text, _messages_usage),
}
