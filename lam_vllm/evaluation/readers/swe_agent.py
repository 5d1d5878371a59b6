"""Trajectories of SWE-agent, mini-swe-agent and SWE-smith, which log tool output as messages of the user."""

from __future__ import annotations

from typing import Any

from lam_vllm.evaluation.readers.chat import read_chat
from lam_vllm.evaluation.readers.run import is_message

_CHAT_KEYS = ("role", "content", "name", "tool_calls", "tool_call_id")


def read_swe_agent(document: Any) -> Any:
    """The messages of a SWE-agent trajectory (`history`, or `trajectory` alone); None where this is none."""
    if not isinstance(document, dict) or not (document.get("history") or "trajectory" in document):
        return None
    return _results_marked(document.get("history")) or _steps(document["trajectory"])


def read_mini_swe_agent(document: Any) -> Any:
    """The messages of a mini-swe-agent trajectory; None where this is none."""
    fields = document if isinstance(document, dict) else {}
    info = fields.get("info")
    by_info = isinstance(info, dict) and "mini_version" in info
    if by_info or str(fields.get("trajectory_format", "")).startswith("mini-swe-agent"):
        return _results_marked(fields.get("messages"))
    return None


def read_swe_smith(document: Any) -> Any:
    """The messages of a row of SWE-smith's trajectories, a JSON string there; None where this is none.

    Raises:
        ValueError: that string is not JSON.
    """
    if not isinstance(document, dict) or "traj_id" not in document:
        return None
    return _results_marked(read_chat(document))


def _results_marked(messages: Any) -> Any:
    """The messages with role `tool` where the agent sent tool output as the user, and without its own bookkeeping."""
    if not isinstance(messages, list) or not all(is_message(message) for message in messages):
        return messages
    kept = [message for message in messages if message["role"] in ("system", "user", "assistant", "tool")]
    return [_marked(message, kept[place - 1] if place else None) for place, message in enumerate(kept)]


def _marked(message: dict[str, Any], previous: dict[str, Any] | None) -> dict[str, Any]:
    chat = {key: message[key] for key in _CHAT_KEYS if message.get(key) is not None}
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
