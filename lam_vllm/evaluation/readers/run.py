"""What a recorded run is, whatever file it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lam_vllm.errors import InputFileError
from lam_vllm.types import Message

_ID_KEYS = ("id", "traj_id", "session_id", "instance_id")


@dataclass(frozen=True, slots=True)
class Run:
    """One recorded conversation of an agent; tool output has role `tool`."""

    id: str
    source: str
    messages: tuple[Message, ...]
    gold_patch: str | None = None
    resolved: bool | None = None


def make_run(path: object, line: int, messages: Any, fields: Mapping[str, Any], source: str) -> Run:
    """The run with these messages; `fields` may name it, its source, its gold patch and its outcome.

    A run without a name is called after its file and `line`.

    Raises:
        InputFileError: `messages` is not a list of objects with a role, or is empty.
    """
    if not isinstance(messages, list) or not messages or not all(is_message(message) for message in messages):
        raise InputFileError(path, "expected a run: chat messages, each an object with a role", line)
    gold_patch, resolved = fields.get("gold_patch"), fields.get("resolved")
    name = next((fields[key] for key in _ID_KEYS if fields.get(key)), None)
    return Run(
        id=str(name or f"{str(path).rsplit('/', 1)[-1]}:{line}"),
        source=str(fields.get("source") or source),
        messages=tuple(messages),
        gold_patch=gold_patch if isinstance(gold_patch, str) else None,
        resolved=resolved if isinstance(resolved, bool) else None,
    )


def is_message(value: Any) -> bool:
    """Whether this is a chat message: an object with a role."""
    return isinstance(value, dict) and isinstance(value.get("role"), str)


def text_of(content: Any) -> str:
    """The text of a string or of a list of parts, joined by line ends as vLLM's Anthropic route does; media is left
    out."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))


def tool_call(call_id: object, name: object, arguments: str) -> dict[str, Any]:
    """A call as an assistant's chat message holds it."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool_message(call_id: object, content: Any) -> dict[str, Any]:
    """The chat message of a result: its text, and the id of its call where that is known."""
    named = {"tool_call_id": call_id} if isinstance(call_id, str) else {}
    return {"role": "tool", **named, "content": text_of(content)}
