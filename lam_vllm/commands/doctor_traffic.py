"""What became of the requests so far, and in words why text was left alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lam_vllm.commands.doctor_finding import Finding

FAILED = "failed_open"


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a request was left as it came, in words, and what to do where that was not wanted."""

    words: str
    remedy: str = ""


CAUSES: Mapping[str, Cause] = {
    "canary": Cause("the canary leaves these conversations out", "raise --lam-canary; 1 takes every conversation"),
    "no_observation": Cause(
        "no tool results in the messages",
        'if the agent sends tool output as user messages: extra_body={"lam": {"observations": "tool+user"}}',
    ),
    "no_repeat": Cause(
        "no tool result repeats earlier ones: first turns of conversations, or a workload without repeats",
        "lam-vllm analyze on recorded runs says what there is to remove",
    ),
    "below_min_tokens": Cause("what repeats is shorter than min_tokens", "lower --lam-min-tokens (default 16)"),
    "not_shorter": Cause("a reference would not be shorter than what it stands for"),
    "not_a_list": Cause("the messages are no list, which nothing can be said about", "send messages as a JSON list"),
    "truncation": Cause(
        "vLLM was asked to cut the prompt's front, where a reference may point to",
        "leave truncate_prompt_tokens out, and on Responses truncation too or send disabled",
    ),
    "stub_like_input": Cause("the tool results hold text that reads like references, so they are kept whole"),
    "unauthenticated": Cause(
        "requests without a valid key to paths that vLLM does not guard (/tokenize) are not computed",
        "send the server's key there too",
    ),
    "token_reuse": Cause("vLLM was given token ids of a prefill elsewhere and reads no messages"),
    "response_started": Cause("later steps of an answer that had begun (built-in tools of Responses)"),
    "excluded_tool": Cause("every result that repeats is of a tool that is excluded", "shorten --lam-exclude-tools"),
    "too_far": Cause(
        "what repeats stands further back than max_reference_distance_tokens",
        "raise it, unless the model sees a sliding window only",
    ),
    "cap_observation_bytes": Cause("tool results over max_observation_bytes are kept whole", "split such output"),
    "cap_windows": Cause("windows after the first max_windows of a conversation are not embedded"),
    "worker_lost": Cause(
        "the worker process died or hung", "look for the cause in the log; fewer --lam-threads take less memory"
    ),
    "encoder_error": Cause(
        "the encoder failed, or its server did not answer", "check that server, or use --lam-profile exact"
    ),
    "time_limit": Cause(
        "compaction took longer than the limit", "more --lam-threads, POST /v1/lam/warm ahead, or --lam-profile exact"
    ),
    "internal_error": Cause("an error inside lam-vllm: please report it", "the log holds its first traceback"),
}
"""Every reason but `off`, which has three causes of its own."""

_SWITCHED_OFF = Cause(
    "compaction is switched off at run time",
    'POST /v1/lam/enabled {"enabled": true}: once, for all processes of the server',
)
_OFF_BY_DEFAULT = Cause(
    "the server is off by default, and the requests did not ask",
    'start it with --lam-profile exact, or ask: extra_body={"lam": {"profile": "exact"}}',
)
_ASKED_OFF = Cause("the requests said off themselves", "look for x-lam, lam and vllm_xargs in the client")
_REJECTED = Cause("a bad option: each got a 400 that names it", "mend the option in the client")
_OBSERVED = Cause("observe computes and changes nothing", "--lam-enabled true, once the figures look right")


def traffic(statuses: Mapping[int, Mapping[str, Any]]) -> Iterator[Finding]:
    """How many requests there were and what was removed, then why the rest was left alone, most frequent first."""
    status = next(iter(statuses.values()))
    counts = _counts(status)
    total = sum(counts.values())
    if not total:
        remedy = "send chat requests (or Responses, Messages): /v1/completions and offline use run no hook"
        yield Finding("traffic", "no request has reached the hook since the start", remedy=remedy)
        return
    changed = counts.pop(("changed", "none"), 0.0)
    removed = sum((status.get("tokens_removed") or {}).values())
    found = f"{_share(changed, total)} of {total:g} requests changed, {removed:g} tokens removed"
    yield Finding("traffic", found, "" if changed else "nothing was removed, for these reasons")
    for (outcome, reason), count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        cause = _cause(outcome, reason, status)
        found = f"{_share(count, total)} {outcome}" + ("" if reason == "none" else f": {reason}")
        remedy = cause.remedy if not changed or outcome in (FAILED, "rejected") else ""
        yield Finding("left alone", found, cause.words, wrong=outcome == FAILED, remedy=remedy)
    yield from _hints(statuses)


def _counts(status: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """Requests by outcome and reason, over all APIs."""
    counts: dict[tuple[str, str], float] = {}
    for key, value in (status.get("requests") or {}).items():
        _, outcome, reason = key.split("/")
        if value:
            counts[outcome, reason] = counts.get((outcome, reason), 0.0) + value
    return counts


def _cause(outcome: str, reason: str, status: Mapping[str, Any]) -> Cause:
    if outcome == "rejected":
        return _REJECTED
    if outcome == "observed":
        return _OBSERVED if reason == "none" else CAUSES.get(reason, Cause(reason))
    if reason != "off":
        return CAUSES.get(reason, Cause(reason))
    if status.get("switched_on") is False:
        return _SWITCHED_OFF
    return _OFF_BY_DEFAULT if status.get("default") == "off" else _ASKED_OFF


def _hints(statuses: Mapping[int, Mapping[str, Any]]) -> Iterator[Finding]:
    """What the processes say of traffic that looks like an agent whose tool output comes as user messages."""
    for process, status in statuses.items():
        if status.get("hint"):
            yield Finding(
                "tool output as user messages", f"seen by process {process}", str(status["hint"]),
                remedy='send {"observations": "tool+user"} with each request of that agent',
            )  # fmt: skip


def _share(count: float, total: float) -> str:
    return f"{count / total:.1%}"
