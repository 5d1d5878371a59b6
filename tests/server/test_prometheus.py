"""A real Prometheus on a real server: every query and rule of docker/ gives numbers, and every fault its alert."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.docker.monitoring import dashboard_queries, rules, substituted
from tests.docker.prometheus_server import TIME_SHOWN, WINDOW, Prometheus
from tests.server.asking import have_text_kept
from tests.server.clients import Request, ask_chat_stream, ask_messages_stream, ask_responses_stream
from tests.server.conftest import LiveServer
from tests.server.faults import FAILING_TEXT
from tests.server.fleet import STORE_BYTES, Fleet, status
from tests.server.talks import recorded, turns
from tests.service.conftest import answering, spawn

ALERTS = {rule["alert"] for rule in rules("alert")}
EXACT = {"profile": "exact"}
WITHOUT_DATA = {
    "Alerts firing": "no alert fires on a healthy server",
    "instance:lam_missing:bool": "there is a series for each vLLM without the plugin, and the plugin is there",
}
"""Panels and recorded figures that have nothing to show on a healthy server; of alerts that is true by their nature."""
FILLING_TEXTS, FILLING_LINES = 18, 4_000
"""More than the cap of the store, in texts of 180 kB."""


@pytest.fixture(scope="module")
def prometheus(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that scrapes the fleet."""
    target = fleet.server.url.removeprefix("http://")
    with Prometheus(tmp_path_factory.mktemp("prometheus"), [target]) as running:
        yield running


@pytest.fixture(scope="module")
def loaded(fleet: Fleet, prometheus: Prometheus) -> Prometheus:
    """The same after a short load: a conversation with the plugin on, two requests with it off, and the other APIs.

    Prometheus sees no step of a series that it has not seen before, so one request of each outcome comes ahead.
    """
    *earlier, last = turns(recorded())
    for options in (EXACT, False):
        ask_chat_stream(fleet.server, Request(last, "ahead", options))
    for outcome in ("changed", "passed_through"):
        prometheus.wait_for(f'lam:time_to_first_token_seconds_count{{api="chat", outcome="{outcome}"}}')
        prometheus.wait_for(f'lam:requests_total{{api="chat", outcome="{outcome}"}}')
    for turn in (*earlier, last):
        ask_chat_stream(fleet.server, Request(turn, "load", EXACT))
    ask_chat_stream(fleet.server, Request(last, "off", options=False))
    ask_responses_stream(fleet.server, Request(last, "responses", EXACT))
    ask_messages_stream(fleet.server, Request(last, "messages", EXACT))
    prometheus.wait_for('lam:requests_total{api="messages", outcome="changed"}')
    prometheus.wait_for(f'rate(lam:requests_total{{api="chat", outcome="passed_through"}}[{WINDOW}]) > 0')
    return prometheus


def workers(fleet: Fleet) -> list[int]:
    with fleet.clients() as clients:
        return [status(client)["encoder"]["process"] for client in clients.values()]


def have_one_kept(fleet: Fleet, salt: str) -> None:
    with fleet.server.client() as client:
        have_text_kept(client, FILLING_LINES, salt)


@contextmanager
def asking_now_and_then(fleet: Fleet) -> Iterator[None]:
    """A request a second: the bytes that a store holds are shown when one is compacted."""
    stop = threading.Event()

    def ask() -> None:
        while not stop.wait(1):
            ask_chat_stream(fleet.server, Request(turns(recorded())[1], "now and then", EXACT))

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        stop.set()
        asking.join()


@pytest.mark.parametrize("query", dashboard_queries(), ids=lambda query: f"{query.panel}: {query.expression}"[:60])
def test_every_query_of_the_dashboard_has_data_or_a_reason(loaded: Prometheus, query: Any) -> None:
    found = loaded.series(substituted(query.expression, WINDOW, TIME_SHOWN))
    assert bool(found) == (query.panel not in WITHOUT_DATA)


@pytest.mark.parametrize("name", [rule["record"] for rule in rules("record")])
def test_every_recorded_figure_has_data_or_a_reason(loaded: Prometheus, name: str) -> None:
    assert bool(loaded.series(name)) == (name not in WITHOUT_DATA)


@pytest.mark.parametrize("alert", rules("alert"), ids=lambda rule: str(rule["alert"]))
def test_no_alert_fires_on_a_healthy_server(loaded: Prometheus, alert: dict[str, Any]) -> None:
    if alert["alert"] != "LamServerDown":  # which one late scrape makes true for a moment
        assert loaded.series(alert["expr"]) == []
    assert alert["alert"] not in loaded.fired()


def test_requests_that_fail_open_are_told_of(fleet: Fleet, loaded: Prometheus) -> None:
    failing = [*recorded(4), {"role": "user", "content": FAILING_TEXT}]
    with loaded.fires("LamFailedOpen"):
        for _ in range(2):
            ask_chat_stream(fleet.server, Request(failing, "failing", EXACT))


def test_an_encoder_that_takes_much_of_the_time_is_told_of(fleet: Fleet, loaded: Prometheus) -> None:
    with loaded.fires("LamCompactionShareHigh"):
        for number in range(3):  # each salt has embeddings of its own
            ask_chat_stream(fleet.server, Request(recorded(), f"cold {number}", {"profile": "guarded"}))


def test_a_store_near_its_cap_is_told_of(fleet: Fleet, loaded: Prometheus) -> None:
    loaded.wait_for(f'lam:store_cap_bytes{{store="records"}} == {STORE_BYTES}')
    with loaded.fires("LamStoreNearCap", store="records"), asking_now_and_then(fleet):
        for number in range(FILLING_TEXTS):
            have_one_kept(fleet, f"filling {number}")
        loaded.wait_for('lam:store_bytes{store="records"} > 0.9 * lam:store_cap_bytes')


def test_a_worker_that_died_is_told_of(fleet: Fleet, loaded: Prometheus) -> None:
    with loaded.fires("LamWorkerRestarts"):
        os.kill(workers(fleet)[0], signal.SIGKILL)


def test_a_store_that_is_gone_is_told_of_until_it_is_back(fleet: Fleet, loaded: Prometheus) -> None:
    fleet.redis.kill()
    try:
        with loaded.fires("LamStoreErrors", store="records"):
            have_one_kept(fleet, "gone")
    finally:
        fleet.redis.start()
    loaded.wait_for('absent(ALERTS{alertname="LamStoreErrors", alertstate="firing"})')


def test_the_faults_made_every_alert_that_a_right_server_can_have(loaded: Prometheus) -> None:
    impossible = {"LamPrefixBreakDefect", "LamDeltaHatAboveDelta", "LamGuardBandViolation"}
    of_other_targets = {"LamPluginMissing", "LamServerDown"}
    assert loaded.fired() == ALERTS - impossible - of_other_targets


def test_a_server_without_the_plugin_and_one_that_is_gone_are_told_of(plain: LiveServer, tmp_path: Path) -> None:
    log = tmp_path / "service.log"
    process = spawn(log, (), {})
    try:
        gone, without = (server.url.removeprefix("http://") for server in (answering(process, log), plain))
        with Prometheus(tmp_path, [without, gone]) as prometheus:
            prometheus.wait_for(f'lam:queue_depth{{instance="{gone}"}}')
            with prometheus.fires("LamServerDown", instance=gone):
                process.kill()
            prometheus.wait_for(f'ALERTS{{alertname="LamPluginMissing", alertstate="firing", instance="{without}"}}')
            assert prometheus.fired() == {"LamServerDown", "LamPluginMissing"}
    finally:
        process.kill()
        process.wait()
