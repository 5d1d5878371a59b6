"""A compaction of a conversation made here: the server has to shorten it, and what it made has to read back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lam_vllm.commands.doctor_ask import Asked
from lam_vllm.commands.doctor_finding import Finding
from lam_vllm.errors import LamError
from lam_vllm.reconstruct import reconstruct

COMPACT = "/v1/lam/compact"
SALT = "lam-vllm doctor"
"""Where a memo is used, what the doctor sends stays apart from what clients send."""
_RESULT = "\n".join(f"bolt {n:02}: checked at berth {n * 7 % 40}, torque {n * n + 11} newton metres" for n in range(40))


def self_test(server: Asked, profile: str | None) -> Iterator[Finding]:
    """The findings for `exact` and, where it is another, for the server's own profile.

    Beside an engine these are dry runs, counted nowhere; a server without one counts them as requests.
    """
    for each in dict.fromkeys([profile or "exact", "exact"]):
        yield _tested(server, each)


def conversation() -> list[dict[str, Any]]:
    """Two calls of one tool that gave the same text."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Check the bolts, twice."}]
    for number in range(2):
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "bolts", "arguments": "{}"}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": _RESULT})
    return messages


def _tested(server: Asked, profile: str) -> Finding:
    what, messages = f"self-test: {profile}", conversation()
    reply = server.ask(COMPACT, {"messages": messages, "lam": _options(profile), "cache_salt": SALT})
    answer = reply.json
    if answer is None:
        remedy = "the server's log holds the cause; a 400 here means that its options and this version do not agree"
        return Finding(what, f"{COMPACT} answers {reply.status}", reply.text[:300], wrong=True, remedy=remedy)
    outcome, reason = answer.get("outcome"), answer.get("reason")  # a server without an engine answers as to a request
    if outcome == "passed_through":
        return Finding(what, "not made", f"the server let it pass: {reason}", remedy="see the switch and the settings")
    compacted = answer.get("messages")
    problem = f"{outcome}: {reason}" if outcome == "failed_open" else _problem(messages, compacted, profile)
    if problem:
        remedy = "install the same version on both sides; if they are the same, please report it with this table"
        return Finding(what, "failed", problem, wrong=True, remedy=remedy)
    read_back = "" if profile == "paper" else ", and the original reads back byte for byte"
    report = answer.get("report")
    saved = report.get("saved_tokens") if isinstance(report, Mapping) else None
    return Finding(what, "passed", f"{saved} tokens saved{read_back}")


def _options(profile: str) -> dict[str, Any]:
    """Options under which this conversation has to be shortened, whatever the server's defaults are."""
    return {
        "enabled": True,
        "profile": profile,
        "min_tokens": 16,
        "exclude_tools": [],
        "max_reference_distance_tokens": None,
        "store": False,
    }


def _problem(messages: list[dict[str, Any]], compacted: Any, profile: str) -> str:
    """What is wrong with the answer; "" where nothing is."""
    if not isinstance(compacted, list) or not all(isinstance(message, Mapping) for message in compacted):
        return "the answer holds no messages"
    if compacted == messages:
        return "a result that repeats word for word was not shortened"
    if [_frame(message) for message in compacted] != [_frame(message) for message in messages]:
        return "something else than the text of a tool result changed"
    if profile == "paper":
        return ""  # its rule drops lines without a trace
    try:
        same = reconstruct(compacted) == messages
    except LamError as error:
        return f"the references do not read back: {error}"
    return "" if same else "the references read back as another text"


def _frame(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message without the one thing that may change."""
    return {key: value for key, value in message.items() if key != "content" or message.get("role") != "tool"}
