"""What a scrape of the server's metrics sees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lam_vllm.commands.doctor_ask import Asked
from lam_vllm.commands.doctor_finding import Finding

METRICS = "/metrics"
PREFIX = "lam:"
REQUESTS = "lam:requests"
_SHARE = (
    "several servers behind one address: scrape and ask each; several processes of one: start it with "
    "`lam-vllm serve`, which lets vLLM set PROMETHEUS_MULTIPROC_DIR; set by hand, that folder must exist and be empty"
)


@dataclass(frozen=True, slots=True)
class Scrape:
    """Families `lam:*`, each with the sum of its counters or gauges; `problem` says why there are none."""

    sums: Mapping[str, float]
    problem: str = ""


def scrape(server: Asked) -> Scrape:
    """One scrape, as Prometheus would make it."""
    from prometheus_client.parser import text_string_to_metric_families

    reply = server.ask(METRICS)
    if reply.status != 200:
        return Scrape({}, f"{METRICS} answers {reply.status or reply.text}")
    try:
        sums = {
            family.name: sum(sample.value for sample in family.samples if _plain(sample.name))
            for family in text_string_to_metric_families(reply.text)
            if family.name.startswith(PREFIX)
        }
    except (ValueError, KeyError, IndexError) as error:
        return Scrape({}, f"{METRICS} cannot be parsed: {error}")
    return Scrape(sums, "" if sums else f"{METRICS} holds no {PREFIX}* families")


def examined(scraped: Scrape, statuses: Mapping[int, Mapping[str, Any]]) -> Iterator[Finding]:
    """Whether everything is on the page, and whether several processes are one sum there."""
    if scraped.problem:
        remedy = "let the scraper ask the server itself, past any proxy; start the server with `lam-vllm serve`"
        yield Finding("metrics", "not there", scraped.problem, wrong=True, remedy=remedy)
        return
    expected = expected_families()
    absent = sorted(expected - set(scraped.sums))
    if absent:
        remedy = "install the same version of lam-vllm on both sides"
        yield Finding("metrics", "some are missing", ", ".join(absent), wrong=True, remedy=remedy)
    else:
        yield Finding("metrics", f"{len(expected)} families", f"{METRICS} parses, every {PREFIX}* is there")
    yield _summed(scraped, statuses)
    why = "a server counts no scrapes: its side cannot tell whether a Prometheus reads them"
    yield Finding("scraped by others", "not known", why, remedy='ask Prometheus: up{job="..."} of this target is 1')


def expected_families() -> set[str]:
    """The families that a server of this version shows before its first request."""
    from prometheus_client import CollectorRegistry

    from lam_vllm.metrics import Metrics

    registry = CollectorRegistry()
    Metrics(registry)
    return {family.name for family in registry.collect() if family.samples}


def _summed(scraped: Scrape, statuses: Mapping[int, Mapping[str, Any]]) -> Finding:
    """A status holds sums over the processes of its server. It was read first, and a count only grows."""
    counted = max(sum((status.get("requests") or {}).values()) for status in statuses.values())
    shown, shared = (
        scraped.sums.get(REQUESTS, 0.0),
        max(int(status.get("processes") or 1) for status in statuses.values()),
    )
    what, found = "metrics of all processes", f"{shown:g} requests on the page, {counted:g} in the status"
    if len(statuses) > shared:
        why = f"{len(statuses)} processes answer that do not count together, so that the page is that of one of them"
        return Finding(what, found, why, wrong=True, remedy=_SHARE)
    if shown < counted:
        return Finding(what, found, "the page leaves out what the server counted", wrong=True, remedy=_SHARE)
    return Finding(what, found, f"one sum over {shared} processes" if shared > 1 else "the server is one process")


def _plain(name: str) -> bool:
    return not name.endswith(("_bucket", "_created", "_sum", "_count"))
