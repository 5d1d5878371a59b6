"""`lam-vllm doctor --url` on servers in many states: the real routes and counters, on the loopback interface."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, get_args

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

import lam_vllm
from lam_vllm.commands.doctor import examine, table
from lam_vllm.commands.doctor_ask import Asked
from lam_vllm.commands.doctor_finding import Finding
from lam_vllm.commands.doctor_metrics import Scrape, expected_families
from lam_vllm.commands.doctor_metrics import examined as examined_metrics
from lam_vllm.commands.doctor_self_test import conversation, self_test
from lam_vllm.commands.doctor_state import encoder, state, store, versions
from lam_vllm.commands.doctor_status import problem_of
from lam_vllm.commands.doctor_traffic import CAUSES, traffic
from lam_vllm.compactor import Compactor
from lam_vllm.config import CompactorConfig
from lam_vllm.metrics import Metrics
from lam_vllm.serving.box import RequestBox
from lam_vllm.serving.rollout import Rollout
from lam_vllm.types import Reason
from tests.cli.listening import listening, with_metrics
from tests.cli.test_doctor import found
from tests.serving.fakes import TEXT, RefusedError, Server, agent_messages, count_words

REPEATED = agent_messages(TEXT, TEXT)
REPLY = "error in the build: the linker was not found in any of the usual folders, nor in those of the path\n" * 6


STATUS: dict[str, Any] = {
    "algorithm": 1, "version": "0", "vllm_version": None, "process": 1, "processes": 1, "switched_on": True,
    "default": "on", "profile": "exact", "config": {}, "canary": 1.0, "models": [], "hint": None, "memo_bytes": 0,
    "store": {"kept": True, "kind": "memory", "url": None, "bytes": 1, "max_bytes": 2, "retention_seconds": 3.0},
    "encoder": {"name": "minilm", "reason": "configured", "restarts": 0}, "store_bytes": 1,
    "requests": {"chat/changed/none": 1.0}, "tokens_removed": {"l0": 1.0}, "prompt_tokens_original": {"chat": 2.0},
    "prompt_tokens_prefilled": {"chat": 1.0}, "prefix_breaks": {"defect": 0.0}, "lookups": {"found": 0.0},
    "store_errors": {"records": 0.0}, "guard_band_violations": 0.0,
}  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("a/b/c"), inner, max_size=3)
    ),
    max_leaves=8,
)


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


def test_a_server_that_works_and_was_used_has_nothing_wrong() -> None:
    server = Server()
    ask(server)
    findings = examined(server)
    assert wrong(findings) == []
    assert "100.0% of 1 requests changed" in found(findings, "traffic").found
    assert found(findings, "metrics of all processes").found.startswith("1 requests on the page, 1 in the status")
    assert found(findings, "scraped by others").found == "not known"
    assert found(findings, "server: lam-vllm").why == "the same as here"
    assert found(findings, "server: encoder").found == "none"
    assert found(findings, "server: models").found == "none"
    assert found(findings, "server: prompt_tokens_prefilled").found.startswith("chat ")


def test_a_server_without_traffic_says_so() -> None:
    findings = examined(Server())
    assert "no request has reached the hook" in found(findings, "traffic").found
    assert "/v1/completions" in found(findings, "traffic").remedy and left_alone(findings) == []


def test_every_reason_there_is_has_words() -> None:
    assert {*CAUSES, "off"} >= {*get_args(Reason)}
    assert all(cause.words for cause in CAUSES.values())


def test_reasons_come_most_frequent_first_and_with_their_shares() -> None:
    server = Server()
    ask(server, agent_messages(TEXT), times=6)  # no_repeat
    ask(server, [{"role": "user", "content": "Good morning."}], times=3)  # no_observation
    ask(server, REPEATED, truncate_prompt_tokens=10)
    findings = examined(server)
    assert [finding.found for finding in left_alone(findings)] == [
        "60.0% unchanged: no_repeat",
        "30.0% unchanged: no_observation",
        "10.0% passed_through: truncation",
    ]
    assert "nothing was removed" in found(findings, "traffic").why
    assert all(finding.remedy for finding in left_alone(findings))


@pytest.mark.parametrize(
    ("server", "fields", "words", "remedy"),
    [
        (Server(mode="off"), {}, "off by default", "--lam-profile exact"),
        (Server(), {"lam": False}, "said off themselves", "in the client"),
        (Server(config=CompactorConfig(profile="exact", min_tokens=9_000)), {}, "shorter than min_tokens", "lower"),
        (Server(), {"box": RequestBox(api="tokenize", authorized=False)}, "without a valid key", "send the"),
        (Server(mode="observe"), {}, "changes nothing", "--lam-enabled true"),
        (Server(rollout=Rollout(0.0)), {}, "canary leaves", "--lam-canary"),
    ],
)
def test_nothing_removed_is_explained_in_words(server: Server, fields: dict[str, Any], words: str, remedy: str) -> None:
    ask(server, **fields)
    (finding,) = left_alone(examined(server))
    assert finding.found.startswith("100.0% ")
    assert words in finding.why and remedy in finding.remedy and not finding.wrong


def test_the_run_time_switch_is_seen() -> None:
    server = Server()
    server.service.admission.switch.turn(False)
    ask(server)
    (finding,) = left_alone(examined(server))
    assert "switched off at run time" in finding.why and "/v1/lam/enabled" in finding.remedy
    assert "once, for all processes of the server" in finding.remedy


def test_an_agent_whose_tool_output_comes_as_user_messages_is_seen() -> None:
    server = Server()
    talk = [{"role": "user", "content": "go"}]
    for turn in range(4):
        talk += [{"role": "assistant", "content": f"call {turn}"}, {"role": "user", "content": REPLY}]
    ask(server, talk)
    findings = examined(server)
    assert "no tool results" in left_alone(findings)[0].why
    hint = found(findings, "tool output as user messages")
    assert "tool+user" in hint.why and "tool+user" in hint.remedy


def test_a_bad_option_is_told_even_where_other_requests_were_changed() -> None:
    server = Server()
    ask(server)
    with pytest.raises(RefusedError):
        ask(server, lam={"bogus": 1})
    (finding,) = left_alone(examined(server))
    assert "400" in finding.why and finding.remedy == "mend the option in the client"


def test_a_failure_inside_is_wrong_and_named() -> None:
    server = Server()
    server.service.handler.compactors.here.get = failing  # type: ignore[method-assign, assignment]
    ask(server)
    findings = examined(server)
    (finding,) = left_alone(findings)
    assert finding.found == "100.0% failed_open: internal_error" and finding.wrong
    assert {"left alone", "self-test: exact"} <= set(wrong(findings))
    assert "answers 500" in found(findings, "self-test: exact").found


def failing(*_: Any) -> Any:
    raise RuntimeError("a fault of the test")


@pytest.mark.parametrize(
    ("count", "what", "is_wrong", "remedy"),
    [
        (lambda m: m.prefix_breaks.labels("defect").inc(), "prefix breaks", True, "report it"),
        (lambda m: m.prefix_breaks.labels("config_changed").inc(), "prefix breaks", False, "whole length"),
        (lambda m: m.guard_band_violations.inc(2), "guard band violations", True, "calibrate encoder"),
        (lambda m: m.lookups.labels("unknown").inc(), "failed look-ups", False, "x-lam-cache-salt"),
        (lambda m: m.lookups.labels("expired").inc(), "failed look-ups", False, "--lam-store-bytes"),
        (lambda m: m.store_errors.labels("records").inc(), "store errors", True, "the store is up"),
    ],
)
def test_counters_that_should_stay_at_zero(
    count: Callable[[Metrics], None], what: str, is_wrong: bool, remedy: str
) -> None:
    server = Server()
    assert found(examined(server), what).found == "0"
    count(server.service.metrics)
    finding = found(examined(server), what)
    assert finding.found in ("1", "2") and finding.wrong == is_wrong and remedy in finding.remedy


def test_a_store_that_is_nearly_full_is_seen() -> None:
    facts = {"kept": True, "kind": "sqlite", "url": "/srv/lam.db", "bytes": 89, "max_bytes": 100}
    (finding,) = store(facts)
    assert finding.found == "/srv/lam.db: 89 of 100 bytes" and not finding.remedy
    (finding,) = store({**facts, "bytes": 91})
    assert "oldest rows go first" in finding.why and "--lam-store-bytes" in finding.remedy
    (finding,) = store({**facts, "kept": False})
    assert "keep no removed text" in finding.why


def test_a_page_that_leaves_out_what_was_counted_is_seen() -> None:
    server, page = Server(), CollectorRegistry()
    Metrics(page)
    ask(server)
    findings = examined(server, page)
    finding = found(findings, "metrics of all processes")
    assert finding.wrong and "PROMETHEUS_MULTIPROC_DIR" in finding.remedy
    assert finding.found == "0 requests on the page, 1 in the status"


def test_processes_that_do_not_count_together_are_seen() -> None:
    server, process = Server(), iter(range(1, 1_000))
    app = with_metrics(server)

    async def status(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Response:
        """Each connection is answered by another process."""
        answer = await go_on(request)
        if request.url.path != "/v1/lam/status":
            return answer
        text = b"".join([part async for part in answer.body_iterator])
        return JSONResponse({**json.loads(text), "process": next(process)})

    app.middleware("http")(status)
    with listening(app) as url:
        finding = found(examine(url), "metrics of all processes")
    assert finding.wrong and "do not count together" in finding.why


def with_status(**fields: Any) -> FastAPI:
    """A server whose status says these things of itself, whatever they are."""
    app = FastAPI()
    text = json.dumps({**STATUS, **fields})
    app.add_api_route("/v1/lam/status", lambda: Response(text, media_type="application/json"))
    app.mount("/", with_metrics(Server()))
    return app


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"processes": "x"}, "processes"),
        ({"process": []}, "process"),
        ({"requests": {"a/b": 1}}, "requests"),
        ({"requests": ["a/b/c"]}, "requests"),
        ({"requests": {"chat/changed/none": float("inf")}}, "requests"),
        ({"tokens_removed": {"l0": "many"}}, "tokens_removed.l0"),
        ({"encoder": {"name": "minilm", "restarts": "many"}}, "encoder.restarts"),
        ({"store": {"bytes": "x"}}, "store.bytes"),
        ({"store": {"max_bytes": [1]}}, "store.max_bytes"),
        ({"profile": ["exact"]}, "profile"),
        ({"prefix_breaks": {"defect": None}}, "prefix_breaks.defect"),
        ({"lookups": 1}, "lookups"),
        ({"guard_band_violations": "none"}, "guard_band_violations"),
    ],
)
def test_a_status_that_no_server_of_ours_gives_is_a_finding(fields: dict[str, Any], place: str) -> None:
    with listening(with_status(**fields)) as url:
        finding = found(examine(url), "plugin")
    assert finding.wrong and finding.found == "its status cannot be read" and finding.remedy
    assert finding.why.startswith(place)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    fields=st.dictionaries(st.sampled_from(sorted(STATUS)), JSON, max_size=3)
    | st.dictionaries(st.text(max_size=5), JSON, max_size=3)
)
def test_nothing_that_a_status_says_makes_the_doctor_fail(fields: dict[str, Any]) -> None:
    """As `examine` goes on once it has the status; the requests that it makes stand in other tests."""
    status = {**STATUS, **fields}
    if not problem_of(status):
        statuses = {1: status}
        scraped = Scrape({"lam:requests": 1.0})
        assert table([*state(statuses), *examined_metrics(scraped, statuses), *traffic(statuses)]).row_count > 5


@pytest.mark.parametrize("report", [None, [], "x", {"saved_tokens": []}])
def test_a_report_may_be_anything(report: Any) -> None:
    messages = Compactor(CompactorConfig(profile="exact"), count_words).compact(conversation()).messages
    app = FastAPI()
    app.add_api_route("/v1/lam/compact", lambda: {"messages": messages, "report": report}, methods=["POST"])
    with listening(app) as url:
        (finding,) = self_test(Asked(url), "exact")
    assert finding.found == "passed"


def test_metrics_that_are_not_there_are_seen_and_traffic_is_told_from_the_status() -> None:
    server = Server()
    ask(server, agent_messages(TEXT))
    with listening(server.app()) as url:
        findings = examine(url)
    assert found(findings, "metrics").found == "not there" and found(findings, "metrics").wrong
    assert [finding.found for finding in left_alone(findings)] == ["100.0% unchanged: no_repeat"]


@pytest.mark.parametrize("text", ["vllm:requests 1\n", "lam:requests_total{api= 3\n", "<html>"])
def test_a_page_that_holds_nothing_of_ours_is_seen(text: str) -> None:
    app = Server().app()
    app.add_api_route("/metrics", lambda: PlainTextResponse(text))
    with listening(app) as url:
        assert found(examine(url), "metrics").wrong


def test_families_that_are_missing_are_named() -> None:
    server, page = Server(), CollectorRegistry()
    Metrics(page)
    page.unregister(next(metric for metric in page._names_to_collectors.values() if "stub" in str(metric)))
    finding = found(examined(server, page), "metrics")
    assert finding.wrong and finding.why == "lam:stub_tokens"
    assert {"lam:requests", "lam:prefix_breaks", "lam:store_errors"} <= expected_families()


def test_the_server_of_another_version_is_seen() -> None:
    (same,) = versions({"version": lam_vllm.__version__})
    assert same.found == lam_vllm.__version__ and not same.remedy
    other, engine = versions({"version": "0.0.9", "vllm_version": "0.32.0"})
    assert other.found == "0.0.9" and f"here it is {lam_vllm.__version__}" in other.why and other.remedy
    assert engine.found == "0.32.0"


def test_the_encoder_and_its_worker_are_shown_and_a_restart_is_wrong() -> None:
    facts = {
        "name": "minilm",
        "reason": "configured",
        "fast_pass": "bf16",
        "fast_pass_reason": "quickest",
        "process": 7,
    }
    shown = {finding.what: finding for finding in encoder({**facts, "restarts": 0})}
    assert shown["server: encoder name"].why == "configured"
    assert shown["server: encoder fast_pass"].why == "quickest"
    assert shown["server: worker restarts"].found == "0"
    (restarts,) = [finding for finding in encoder({**facts, "restarts": 2}) if finding.wrong]
    assert restarts.found == "2" and "--lam-threads" in restarts.remedy


def test_the_self_test_leaves_no_text_behind_and_is_no_traffic() -> None:
    server = Server(mode="off")
    findings = examined(server)
    assert found(findings, "self-test: exact").found == "passed"
    assert "byte for byte" in found(findings, "self-test: exact").why
    assert server.service.handler.records.bytes_used == 0
    assert sum(server.service.metrics.counts("requests").values()) == 0


def test_a_service_without_an_engine_is_examined_too_and_one_that_is_switched_off_is_not_ill() -> None:
    server = Server(mode="off", standalone=True)
    findings = examined(server)
    assert wrong(findings) == []
    assert found(findings, "self-test: exact").found == "passed"
    server.service.admission.switch.turn(False)
    findings = examined(server)
    assert wrong(findings) == []
    assert (found(findings, "self-test: exact").found, found(findings, "self-test: exact").why) == (
        "not made",
        "the server let it pass: off",
    )


def test_a_service_without_an_engine_whose_compactor_fails_is_ill() -> None:
    server = Server(standalone=True)
    server.service.handler.compactors.here.get = failing  # type: ignore[method-assign, assignment]
    finding = found(examined(server), "self-test: exact")
    assert finding.wrong and finding.why == "failed_open: internal_error"


def test_the_self_test_does_not_hang_on_the_servers_options() -> None:
    config = CompactorConfig(
        profile="exact", min_tokens=5_000, exclude_tools=("bolts",), max_reference_distance_tokens=1
    )
    assert found(examined(Server(config=config)), "self-test: exact").found == "passed"


def spoiled(messages: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Answers that a server must not give, and what is wrong with each."""
    last = messages[-1]
    return [
        ("not shortened", messages),
        ("else than the text", messages[:-1]),
        ("else than the text", [{**messages[0], "content": "Hm."}, *messages[1:-1], {**last, "content": "x"}]),
        ("another text", [*messages[:-1], {**last, "content": "[result 1, lines 1-9 repeat]"}]),
        ("do not read back", [*messages[:-1], {**last, "content": "[lines 3-90 of result 1 repeat]"}]),
    ]


@pytest.mark.parametrize("place", range(5))
def test_an_answer_that_is_wrong_is_told(place: int) -> None:
    words, messages = spoiled(conversation())[place]
    server = Server()
    app = FastAPI()
    app.add_api_route("/v1/lam/compact", lambda: {"messages": messages, "report": {}}, methods=["POST"])
    app.mount("/", with_metrics(server))
    with listening(app) as url:
        finding = found(examine(url), "self-test: exact")
    assert finding.wrong and words in finding.why
