"""A server that was asked, and what the doctor finds there."""

from __future__ import annotations

import asyncio
from typing import Any

from prometheus_client import CollectorRegistry

from lam_vllm.commands.doctor import examine
from lam_vllm.commands.doctor_finding import Finding
from lam_vllm.serving.box import RequestBox
from tests.cli.listening import listening, with_metrics
from tests.serving.fakes import TEXT, Server, agent_messages

REPEATED = agent_messages(TEXT, TEXT)


def ask(server: Server, messages: Any = REPEATED, times: int = 1, box: RequestBox | None = None, **fields: Any) -> None:
    """Send a request, several times where said so."""
    for _ in range(times):
        asyncio.run(server.ask(messages, box, **fields))


def examined(server: Server, page: CollectorRegistry | None = None) -> list[Finding]:
    """The doctor's findings about the server, those about this machine left out."""
    with listening(with_metrics(server, page)) as url:
        findings = examine(url)
    return findings[[finding.what for finding in findings].index("plugin") :]


def left_alone(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.what == "left alone"]


def wrong(findings: list[Finding]) -> list[str]:
    assert all(finding.remedy for finding in findings if finding.wrong), "each failing finding says what to do"
    return [finding.what for finding in findings if finding.wrong]


def failing(*_: Any) -> Any:
    raise RuntimeError("a fault of the test")
