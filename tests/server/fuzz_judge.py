"""Fuzzed requests sent to a server with the plugin. Whose fault an error is, vLLM without the plugin shows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain, islice

import httpx

from tests.server.fuzz_routes import SWITCH, described
from tests.server.fuzzing import Fuzzed, mutated

CLIENTS = 4
DESCRIBED_SHARE = 0.2
"""Of the requests: made from the description of the plugin's routes. The others are mutated conversations."""
_SHOWN = 300
_NAMES_OPTION = re.compile(r"x-lam|vllm_xargs\.lam_|\blam[.:]|'lam'|GPT-OSS")
_ERROR_EVENT = re.compile(r'"error": ?\{.*"code": ?(\d{3})')


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, the plugin's report with it: status 0 where nothing did, `lost` where nothing did at first."""

    request: Fuzzed
    status: int
    text: str
    report: str = ""
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """An answer that is the plugin's fault, and why it is."""

    answer: Answer
    why: str


@dataclass(slots=True)
class Verdict:
    """Statuses by path, what vLLM fails on by itself by kind of request, and what the plugin has to answer for."""

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    of_vllm: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    generated: int = 0
    connections_lost: int = 0


def fuzz(hooked: httpx.Client, plain: httpx.Client, *, seed: int, count: int, generated: int) -> Verdict:
    """Send `count` requests, of which at most `generated` reach the engine, and judge every answer.

    The run-time switch is fuzzed before the rest, and then left on.
    """
    openapi = hooked.get("/openapi.json").raise_for_status().json()
    of_routes = described(openapi, seed, round(DESCRIBED_SHARE * count))
    of_switch = [request for request in of_routes if request.path == SWITCH]
    verdict = Verdict()
    _judge(verdict, [ask(hooked, request) for request in of_switch], plain)
    hooked.post(SWITCH, json={"enabled": True}).raise_for_status()
    others = [request for request in of_routes if request.path != SWITCH]
    rest = chain(others, mutated(seed, count - len(of_routes), generated))
    with ThreadPoolExecutor(CLIENTS) as pool:
        _judge(verdict, pool.map(lambda request: ask(hooked, request), rest), plain)
    return verdict


def fuzz_alone(service: httpx.Client, *, seed: int, count: int) -> Verdict:
    """Send `count` requests to a server that has the plugin's routes alone, and judge every answer."""
    openapi = service.get("/openapi.json").raise_for_status().json()
    of_routes = [each for each in described(openapi, seed, round(DESCRIBED_SHARE * count)) if each.path != SWITCH]
    conversations = (each for each in mutated(seed, 6 * count, 0) if each.is_ours)  # a third of them are
    requests = islice(chain(of_routes, conversations), count)
    verdict = Verdict()
    with ThreadPoolExecutor(CLIENTS) as pool:
        _judge(verdict, pool.map(lambda request: ask(service, request), requests), service)
    return verdict


def ask(client: httpx.Client, request: Fuzzed) -> Answer:
    """The server's answer; where a connection is lost, that on a new one, or none.

    A few connections in 10,000 are reset, by vLLM with the plugin and without, over requests that are answered the next
    time; why is not known. What makes a server drop a request drops it again.
    """
    answer = _asked_once(client, request)
    return answer if answer.status else replace(_asked_once(client, request), lost=True)


def _asked_once(client: httpx.Client, request: Fuzzed) -> Answer:
    headers = {name.encode(): value for name, value in request.headers.items()}
    try:
        response = client.request(request.method, request.path, headers=headers, content=request.content)
    except httpx.TransportError as error:
        return Answer(request, 0, f"{type(error).__name__}: {error}")
    event = _ERROR_EVENT.search(response.text) if "event-stream" in response.headers.get("content-type", "") else None
    status = int(event[1]) if event else response.status_code
    return Answer(request, status, response.text[:_SHOWN], response.headers.get("x-lam-report", ""))


def told(findings: Iterable[Finding]) -> Iterator[str]:
    """Each finding as a paragraph that says what to send to see it again."""
    for finding in findings:
        request, answer = finding.answer.request, finding.answer
        yield (
            f"{finding.why}: {answer.status} {answer.text!r}\n  {request.name} {request.kind}: {request.method} "
            f"{request.path[:200]} {dict(request.headers)!r:.300}\n  {request.content[:1_000]!r}"
        )


def _judge(verdict: Verdict, answers: Iterable[Answer], plain: httpx.Client) -> None:
    for answer in answers:
        request = answer.request
        path = re.sub(r"(/v1/lam/records/).*", r"\1{id}", request.path)
        verdict.statuses[path, answer.status] += 1
        verdict.connections_lost += answer.lost
        verdict.generated += request.is_generated and answer.status == httpx.codes.OK
        if "failed_open" in answer.report:
            verdict.findings.append(Finding(answer, f"failed inside ({answer.report})"))
        if 200 <= answer.status < 300 or (request.is_ours and 200 <= answer.status < 500):
            continue
        alone = Answer(request, 404, "") if request.is_ours else ask(plain, request)
        if why := _fault(answer, alone):
            verdict.findings.append(Finding(answer, why))
        elif answer.status >= 500 or answer.status == 0:
            verdict.of_vllm[f"{path} {answer.status} {request.kind}"] += 1


def _fault(answer: Answer, alone: Answer) -> str | None:
    """What the plugin did wrong, given what vLLM answers without it."""
    if answer.status == 0:
        return None if alone.status == 0 else "no answer"
    if answer.status >= 500:
        return None if alone.status >= 500 else f"an error of the server, where vLLM alone says {alone.status}"
    if 0 < alone.status < 400 and not _NAMES_OPTION.search(answer.text):
        return f"refused without naming an option, where vLLM alone says {alone.status}"
    return None
