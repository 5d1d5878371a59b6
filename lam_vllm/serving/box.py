"""What the middleware and the hook tell each other about one HTTP request."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

from lam_vllm.serving.asgi import Scope
from lam_vllm.types import Outcome, Report

Api = Literal["chat", "responses", "messages", "tokenize", "compact"]

HEADER_LIMIT_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Settled:
    """One prompt after vLLM made its token ids. `report` is None where nothing was computed.

    `original_tokens` is `prefilled_tokens` plus what was removed less the stubs: an estimate to a few tokens per cut.
    """

    outcome: Outcome
    reason: str
    original_tokens: int
    prefilled_tokens: int
    seconds: float
    report: Report | None = None


@dataclass(slots=True)
class RequestBox:
    """One HTTP request. The middleware fills the first part, the hook the second.

    It is mutable because vLLM runs handlers in tasks of their own: a task gets a copy of the context, so a variable set
    inside would not come back out, while the object that the copy points to is the same.
    """

    api: Api = "chat"
    options_header: str | None = None
    salt_header: str | None = None
    authorized: bool = True
    scope: Scope | None = None
    response_started: bool = False

    wants_usage: bool = False
    outcome: Outcome | None = None
    settled: list[Settled] = field(default_factory=list)


current_box: ContextVar[RequestBox | None] = ContextVar("lam_request", default=None)


def report_header(settled: Iterable[Settled]) -> bytes:
    """ASCII JSON of at most `HEADER_LIMIT_BYTES`: counts only, summed over the prompts of a batch."""
    entries = list(settled)
    last = entries[-1]
    values: dict[str, Any] = {
        "outcome": last.outcome,
        "original_tokens": sum(entry.original_tokens for entry in entries),
        "prefilled_tokens": sum(entry.prefilled_tokens for entry in entries),
        "milliseconds": round(1000 * sum(entry.seconds for entry in entries), 2),
        **_report_values([entry.report for entry in entries if entry.report is not None]),
        "reasons": _sums([_reasons(entry) for entry in entries]),
    }
    header = _ascii(values)
    return header if len(header) <= HEADER_LIMIT_BYTES else _ascii({**values, "reasons": {}})


def _report_values(reports: list[Report]) -> dict[str, Any]:
    if not reports:
        return {}
    last = reports[-1]
    return {
        "profile": last.profile,
        "algorithm": last.algorithm,
        "removed_tokens": _sums([report.removed_tokens for report in reports]),
        "stub_tokens": sum(report.stub_tokens for report in reports),
        "delta_hat": round(max(report.delta_hat for report in reports), 6),
        "prefix": last.prefix_digest,
    }


def _reasons(entry: Settled) -> Mapping[str, int]:
    """Counts over observations where there were any; else the one reason of the whole prompt."""
    return entry.report.reasons if entry.report is not None and entry.report.observations else {entry.reason: 1}


def _sums(counts: list[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for key, count in each.items():
            total[key] = total.get(key, 0) + count
    return total


def _ascii(values: dict[str, Any]) -> bytes:
    return json.dumps(values, separators=(",", ":")).encode("ascii")
