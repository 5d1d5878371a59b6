"""Items of the OpenAI Responses API: a list of them, or a request or response that holds them."""

from __future__ import annotations

import json
from typing import Any

from lam_vllm.evaluation.readers.run import is_message, text_of, tool_call, tool_message

_RESULTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
_ITEMS = (*_RESULTS, *_CALLS, "reasoning", "message")


def read_responses(document: Any) -> list[dict[str, Any]] | None:
    """The items as chat messages, or None where these are none.

    What the assistant does between two results is one message: reasoning, text, calls. Items that hold neither text
    nor a result of the client's tools (a web search) are left out.

    Raises:
        ValueError: an item has no form that is known; names its place.
    """
    items = _items(document)
    if items is None:
        return None
    messages: list[dict[str, Any]] = []
    for place, item in enumerate(items, 1):
        try:
            _add(messages, item)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"item {place} is not one of the Responses API: {error}") from None
    return messages


def _items(document: Any) -> list[Any] | None:
    if isinstance(document, list):
        return document if any(_is_bare_item(item) for item in document) else None
    if not isinstance(document, dict) or "messages" in document:
        return None
    given, made = document.get("input"), document.get("output")
    if not isinstance(given, list) and not isinstance(made, list):
        return None
    system = [{"role": "system", "content": document["instructions"]}] if document.get("instructions") else []
    asked = [{"role": "user", "content": given}] if isinstance(given, str) else given or []
    return [*system, *asked, *(made if isinstance(made, list) else [])]


def _is_bare_item(item: Any) -> bool:
    """Whether this can only be an item: chat messages all have a role."""
    return isinstance(item, dict) and not is_message(item) and item.get("type") in _ITEMS


def _add(messages: list[dict[str, Any]], item: Any) -> None:
    kind = item.get("type", "message") if isinstance(item, dict) else None
    if not isinstance(kind, str):
        raise TypeError("expected an object with a type")
    if kind in _RESULTS:
        messages.append(tool_message(item.get("call_id") or item.get("id"), item["output"]))
    elif kind in _CALLS:
        _assistant(messages).setdefault("tool_calls", []).append(_call(kind, item))
    elif kind == "reasoning":
        text = text_of(item.get("content")) or text_of(item.get("summary"))
        if text:
            _assistant(messages, "reasoning")["reasoning"] = text
    elif kind == "message":
        _add_message(messages, item)
    elif kind.endswith("_output"):
        raise ValueError(f"results of type {kind!r} are not read; those read are {', '.join(_RESULTS)}")


def _add_message(messages: list[dict[str, Any]], item: dict[str, Any]) -> None:
    role, text = item["role"], text_of(item["content"])
    if role == "assistant":
        _assistant(messages, "content")["content"] = text
    else:
        messages.append({"role": "system" if role == "developer" else role, "content": text})


def _assistant(messages: list[dict[str, Any]], fresh: str = "") -> dict[str, Any]:
    """The assistant's message that is being put together: the last one, unless it has the field `fresh` already."""
    if not messages or messages[-1]["role"] != "assistant" or messages[-1].get(fresh):
        messages.append({"role": "assistant", "content": ""})
    return messages[-1]


def _call(kind: str, item: dict[str, Any]) -> dict[str, Any]:
    call_id = item.get("call_id") or item.get("id")
    if kind == "function_call":
        return tool_call(call_id, item["name"], item["arguments"])
    if kind == "custom_tool_call":
        return tool_call(call_id, item["name"], json.dumps({"input": item["input"]}))
    return tool_call(call_id, "local_shell", json.dumps(item["action"]))
