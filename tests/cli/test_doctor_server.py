"""`lam-vllm doctor --url` on servers in many states: the real routes and counters, on the loopback interface."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest
from fastapi import Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from prometheus_client import CollectorRegistry

import lam_vllm
from lam_vllm.commands.doctor import examine
from lam_vllm.commands.doctor_metrics import expected_families
from lam_vllm.commands.doctor_state import encoder, store, versions
from lam_vllm.config import CompactorConfig
from lam_vllm.metrics import Metrics
from tests.cli.doctored import ask, examined, failing, left_alone, wrong
from tests.cli.listening import listening, with_metrics
from tests.cli.test_doctor import found
from tests.serving.fakes import TEXT, Server, agent_messages


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
        "device": "cpu",
        "device_reason": "torch sees no GPU",
        "process": 7,
    }
    shown = {finding.what: finding for finding in encoder({**facts, "restarts": 0})}
    assert shown["server: encoder name"].why == "configured"
    assert shown["server: encoder fast_pass"].why == "quickest"
    device = shown["server: encoder device"]
    assert (device.found, device.why) == ("cpu", "torch sees no GPU")
    assert not any(what.endswith("reason") for what in shown)
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
