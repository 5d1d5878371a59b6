"""Group H, F90 and F91: no line of the log and no series of the metrics for each request."""

from __future__ import annotations

import logging
from collections import Counter
from typing import get_args

import httpx
import pytest

from lam_vllm.config import CompactorConfig
from lam_vllm.metrics import APIS, CAUSES, LOOKUPS, NO_REASON, SOURCES, STAGES
from lam_vllm.records import RecordStore
from lam_vllm.serving.rollout import Rollout
from lam_vllm.stores import StoreError
from lam_vllm.stores.base import KINDS
from lam_vllm.stores.behind import RowsBehind
from lam_vllm.stores.redis import RedisRows
from lam_vllm.types import Layer, Outcome, Reason
from tests.serving.fakes import KEY, Server, with_client

from .agent import MODULE, agent
from .operations import REPEATED, BusyEncoder, ask, counted, every_outcome, labels


def test_f90_no_request_writes_a_line_above_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server = Server()
    for number in range(3):
        every_outcome(server, number)
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.DEBUG] == []
    assert {
        outcome
        for outcome in get_args(Outcome)
        if any(f"/{outcome}/" in key and number for key, number in counted(server).items())
    } == {*get_args(Outcome)} - {"failed_open"}


def test_f90_a_failure_that_lasts_writes_one_traceback_and_not_one_a_request(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    encoder = BusyEncoder()
    encoder.release.set()
    server = Server(config=CompactorConfig(profile="paper"), encoder=encoder)
    for number in range(5):
        assert ask(server, agent(f"{number}\n{MODULE}"))
    assert server.counted("failed_open", "encoder_error") == 5
    assert len([record for record in caplog.records if record.levelno > logging.DEBUG]) == 1


def test_f90_a_store_that_is_gone_writes_one_line_and_not_one_a_request(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server, errors = Server(), Counter[str]()
    gone = RedisRows("redis://127.0.0.1:1/0", "records", 64_000_000, 604_800.0)
    rows = RowsBehind(gone, lambda lost: errors.update(lost=lost), label="the store", pause_seconds=0.0)
    records = server.service.handler.records = RecordStore(rows, KEY)
    for number in range(20):
        ask(server, agent(f"{number}\n{MODULE}", MODULE, f"{number}\n{MODULE}"))
        with pytest.raises(StoreError):
            records.look_up("", f"{number:064x}")
    assert server.counted("changed", "none") == 20
    assert errors["lost"] >= 20
    records.close()
    lines = [record.getMessage() for record in caplog.records if record.levelno > logging.DEBUG]
    assert len(lines) == 1 and lines[0].startswith("lam: the store failed and is tried again")


@pytest.mark.parametrize("share", [1.0, 0.0])
def test_f91_labels_come_from_fixed_sets_and_100_visitors_add_no_series(share: float) -> None:
    server = Server(rollout=Rollout(share))
    every_outcome(server, 0)
    before = labels(server)
    allowed = {
        "api": {*APIS},
        "outcome": {*get_args(Outcome)},
        "reason": {*get_args(Reason), NO_REASON},
        "layer": {*get_args(Layer)},
        "stage": {*STAGES},
        "cause": {*CAUSES},
        "source": {*SOURCES},
        "memo": {"prefix", "embedding"},
        "store": {*KINDS},
        "result": {*LOOKUPS},
    }
    assert {name for name, _ in before} == set(allowed)
    for number in range(1, 100):
        every_outcome(server, number)
    assert labels(server) == before
    assert all(value in allowed[name] for name, value in before)
    assert (("reason", "canary") in before) == (share == 0.0)


def test_f91_a_service_without_an_engine_counts_under_one_api_whoever_asks() -> None:
    server, seen = Server(standalone=True), []

    async def use(client: httpx.AsyncClient) -> None:
        for number in range(20):
            body = {"messages": REPEATED, "model": f"m{number}", "cache_salt": f"c{number}"}
            (await client.post("/compact", json=body)).raise_for_status()
            (await client.get(f"/records/{number}", headers={"x-lam-cache-salt": f"c{number}"})).read()
            seen.append(labels(server))

    with_client(server, use)
    assert all(each == seen[0] for each in seen)
    assert [key for key, number in counted(server).items() if number] == ["compact/changed/none"]
