"""Recorded runs out of the files in which agents leave them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lam_vllm.errors import InputFileError
from lam_vllm.evaluation.documents import read_documents
from lam_vllm.types import Message

CHAT_KEYS = ("role", "content", "name", "tool_calls", "tool_call_id")


@dataclass(frozen=True, slots=True)
class Run:
    """One recorded conversation of an agent; tool output has role `tool`."""

    id: str
    source: str
    messages: tuple[Message, ...]
    gold_patch: str | None = None
    resolved: bool | None = None


def read_runs(path: str | Path) -> Iterator[Run]:
    """The runs of a file, in order, read as they are asked for.

    A file holds one of these, or one a line, plain or xz: an object with `messages`; a list of OpenAI messages; a
    SWE-agent trajectory (`history`, or `trajectory` alone); a mini-swe-agent trajectory.

    Raises:
        InputFileError: as `read_documents`, or a value is none of these; names the line.
    """
    for line, document in read_documents(path):
        yield _run(Path(path), line, document)


def find_run(path: str | Path, run_id: str | None) -> Run:
    """The run with this id, or the first when None is asked for.

    Raises:
        InputFileError: as `read_runs`, or no run has this id.
    """
    for run in read_runs(path):
        if run_id in (None, run.id):
            return run
    raise InputFileError(path, f"no run has the id {run_id!r}")


def _run(path: Path, line: int, document: Any) -> Run:
    fields = document if isinstance(document, dict) else {}
    format_name, messages = _messages(document, fields)
    if not isinstance(messages, list) or not messages or not all(_is_message(message) for message in messages):
        raise InputFileError(path, "expected a run: chat messages, each an object with a role", line)
    gold_patch, resolved = fields.get("gold_patch"), fields.get("resolved")
    return Run(
        id=str(fields.get("id") or fields.get("instance_id") or f"{path.name}:{line}"),
        source=str(fields.get("source") or format_name),
        messages=tuple(messages),
        gold_patch=gold_patch if isinstance(gold_patch, str) else None,
        resolved=resolved if isinstance(resolved, bool) else None,
    )


def _messages(document: Any, fields: dict[str, Any]) -> tuple[str, Any]:
    """The name of the document's format and its messages; whether they are messages is not yet known."""
    if isinstance(document, list):
        return "messages", document
    if fields.get("history") or "trajectory" in fields:
        return "swe-agent", _results_marked(fields.get("history")) or _steps(fields["trajectory"])
    if str(fields.get("trajectory_format", "")).startswith("mini-swe-agent") or "mini_version" in _info(fields):
        return "mini-swe-agent", _results_marked(fields.get("messages"))
    return "messages", fields.get("messages")


def _results_marked(messages: Any) -> Any:
    """The messages with role `tool` where the agent sent tool output as the user, and without its own bookkeeping."""
    if not isinstance(messages, list) or not all(_is_message(message) for message in messages):
        return messages
    kept = [message for message in messages if message["role"] in ("system", "user", "assistant", "tool")]
    return [_marked(message, kept[place - 1] if place else None) for place, message in enumerate(kept)]


def _marked(message: dict[str, Any], previous: dict[str, Any] | None) -> dict[str, Any]:
    chat = {key: message[key] for key in CHAT_KEYS if message.get(key) is not None}
    if message["role"] == "user" and previous is not None and previous["role"] == "assistant":
        chat["role"] = "tool"
    call_ids = message.get("tool_call_ids")
    if isinstance(call_ids, list) and call_ids:
        chat["tool_call_id"] = call_ids[0]
    return chat


def _steps(trajectory: Any) -> Any:
    if not isinstance(trajectory, list) or not all(isinstance(step, dict) for step in trajectory):
        return trajectory
    return [
        {"role": role, "content": step[key]}
        for step in trajectory
        for role, key in (("assistant", "response"), ("tool", "observation"))
        if isinstance(step.get(key), str)
    ]


def _info(fields: dict[str, Any]) -> dict[str, Any]:
    info = fields.get("info")
    return info if isinstance(info, dict) else {}


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str)
