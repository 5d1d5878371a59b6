"""Chat messages out of the entries of a Claude Code log."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from lam_vllm.evaluation.readers.claude_entries import Entry
from lam_vllm.evaluation.readers.run import text_of, tool_call, tool_message


def chat_messages(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """The messages of these entries: those of one answer together, each tool result as one message of role `tool`.

    A call that was logged behind the result of another one stands before it, where the answer was.
    """
    messages: list[dict[str, Any]] = []
    answers: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if entry.role == "user":
            messages += _asked(entry)
        elif entry.role == "assistant":
            answer = answers.get(entry.message_id or "")
            if answer is None:
                answer = {"role": "assistant", "content": ""}
                messages.append(answer)
            if entry.message_id:
                answers[entry.message_id] = answer
            _extend(answer, entry)
    return messages


def _asked(entry: Entry) -> list[dict[str, Any]]:
    results = [
        tool_message(block.get("tool_use_id"), block.get("content"))
        for block in entry.blocks
        if block["type"] == "tool_result"
    ]
    text = text_of([block for block in entry.blocks if block["type"] == "text"])
    return [*results, {"role": "user", "content": text}] if text or not results else results


def _extend(answer: dict[str, Any], entry: Entry) -> None:
    for block in entry.blocks:
        if block["type"] == "text":
            answer["content"] = _joined(answer["content"], block.get("text"))
        elif block["type"] == "thinking":
            answer["reasoning"] = _joined(answer.get("reasoning", ""), block.get("thinking"))
        elif block["type"] == "tool_use":
            call = tool_call(block.get("id"), block.get("name"), json.dumps(block.get("input")))
            answer.setdefault("tool_calls", []).append(call)


def _joined(before: str, text: Any) -> str:
    return "\n".join(part for part in (before, text) if isinstance(part, str) and part)
