"""`lam-vllm doctor`: what is installed, which path is taken, and why; with a URL, how a running server fares."""

from __future__ import annotations

import os
from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from lam_vllm.commands.doctor_ask import Asked
from lam_vllm.commands.doctor_finding import Finding
from lam_vllm.commands.doctor_installed import installed
from lam_vllm.commands.doctor_metrics import examined, scrape
from lam_vllm.commands.doctor_reach import reach
from lam_vllm.commands.doctor_self_test import self_test
from lam_vllm.commands.doctor_state import state
from lam_vllm.commands.doctor_traffic import traffic


def examine(url: str | None = None, api_key: str | None = None) -> list[Finding]:
    """The findings about this installation and, with `url`, about a running server, counted since its start.

    A server that cannot be reached, or has no plugin, is a finding. The command ends with 1 when one is wrong, and
    with 2 when the question itself was.

    Raises:
        OptionError: the URL is not one of HTTP.
    """
    os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)  # beside a server this would write into the server's own folder
    asked = Asked(url, api_key) if url is not None else None
    return [*installed(), *(_server(asked) if asked else ())]


def table(findings: list[Finding]) -> Table:
    """The findings, those that are wrong marked. What a server says stands there as it is, markup and all."""
    made = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("", "what", "found", "why", "what to do"):
        made.add_column(name, overflow="fold")
    for finding in findings:
        cells = (finding.what, finding.found, finding.why, finding.remedy)
        made.add_row(Text("x" if finding.wrong else "", "red"), *(_plain(cell) for cell in cells))
    return made


def _server(asked: Asked) -> Iterator[Finding]:
    reached = reach(asked)
    yield reached.finding
    if not reached.statuses:
        return
    scraped = scrape(asked)  # after the statuses, whose counts it has to hold
    yield from state(reached.statuses)
    yield from examined(scraped, reached.statuses)
    yield from traffic(reached.statuses)
    yield from self_test(asked, reached.status.get("profile"))


def _plain(text: str) -> Text:
    """Text for a terminal: a server's answer may hold control characters, which are shown and not obeyed."""
    return Text("".join(each if each.isprintable() or each == "\n" else ascii(each)[1:-1] for each in text))
