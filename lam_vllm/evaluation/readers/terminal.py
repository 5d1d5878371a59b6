"""Terminal-agent trajectories in the Agent Trajectory Interchange Format, as terminus-2 and Harbor write them."""

from __future__ import annotations

import json
from typing import Any

from lam_vllm.evaluation.readers.run import text_of, tool_call, tool_message

_ROLES = {"system": "system", "user": "user", "agent": "assistant"}


def read_terminal(document: Any) -> list[dict[str, Any]] | None:
    """The steps as chat messages, each step's results behind it; None where this is no such trajectory.

    Raises:
        ValueError: a step has not the form of the specification; names its place.
    """
    fields = document if isinstance(document, dict) else {}
    if not str(fields.get("schema_version", "")).startswith("ATIF") or not isinstance(fields.get("steps"), list):
        return None
    messages = []
    for place, step in enumerate(fields["steps"], 1):
        try:
            messages += [_spoken(step), *_results(step)]
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"step {place} is not one of {fields['schema_version']}: {error!r}") from None
    return messages


def _spoken(step: dict[str, Any]) -> dict[str, Any]:
    calls = [
        tool_call(call["tool_call_id"], call["function_name"], json.dumps(call["arguments"]))
        for call in step.get("tool_calls") or ()
    ]
    reasoning = step.get("reasoning_content")
    return {
        "role": _ROLES[step["source"]],
        "content": text_of(step["message"]),
        **({"reasoning": reasoning} if reasoning else {}),
        **({"tool_calls": calls} if calls else {}),
    }


def _results(step: dict[str, Any]) -> list[dict[str, Any]]:
    results = (step.get("observation") or {}).get("results") or ()
    return [tool_message(result.get("source_call_id"), result.get("content")) for result in results]
