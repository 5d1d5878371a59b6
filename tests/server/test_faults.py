"""What dies, hangs or is gone costs no request its answer, is counted, and comes back without a restart."""

from __future__ import annotations

import os
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from lam_vllm.types import Message
from tests.server.asking import look_up, removed_record, render, samples
from tests.server.fleet import Fleet, status
from tests.server.talks import by_user, recorded
from tests.server.waiting import stopped, wait_for

CHANGED, LATE = "chat/changed/none", "chat/failed_open/time_limit"
OFF = {"lam": False}


def outcomes(client: httpx.Client) -> Counter[str]:
    """Requests of the whole server so far, by API, outcome and reason."""
    return Counter({name: int(count) for name, count in status(client)["requests"].items()})


def errors(client: httpx.Client) -> dict[str, float]:
    counted: dict[str, float] = status(client)["store_errors"]
    return counted


def restarts(client: httpx.Client) -> float:
    """Of the workers of every process."""
    return samples(client)["lam:worker_restarts_total"]


def assert_recovered(client: httpx.Client, lost_worker: int, messages: list[Message]) -> None:
    """Wait for another worker, which then compacts these messages as any does."""
    wait_for(lambda: status(client)["encoder"]["process"] != lost_worker)
    before = outcomes(client)
    assert len(render(client, messages)) < len(render(client, messages, **OFF))
    assert outcomes(client) - before == Counter({CHANGED: 1, "chat/passed_through/off": 1})


def test_a_worker_that_is_killed_over_a_request(fleet: Fleet) -> None:
    messages = by_user("killed", recorded())
    with fleet.clients() as clients, ThreadPoolExecutor(1) as threads:
        one, other = clients.values()
        worker, before, started = status(one)["encoder"]["process"], outcomes(other), restarts(other)
        with stopped(worker):
            answer = threads.submit(render, one, messages)
            wait_for(lambda: samples(other)["lam:queue_depth"] == 1)
            os.kill(worker, signal.SIGKILL)
            ids = answer.result()
        (outcome,) = (outcomes(other) - before).elements()
        # It is tried once more: whether in time, depends on how soon there is another worker.
        assert outcome in (CHANGED, LATE)
        assert ids == render(other, messages, **({} if outcome == CHANGED else OFF))
        assert_recovered(one, worker, messages)
        assert restarts(other) == started + 1


@pytest.mark.parametrize("fault", ["a worker that gives no sign of life", "an encoder that hangs inside a call"])
def test_what_hangs_is_passed_by_and_replaced(fault: str, fleet: Fleet) -> None:
    messages = by_user(fault, recorded())
    with fleet.clients() as clients:
        one, other = clients.values()
        worker, before, started = status(one)["encoder"]["process"], outcomes(other), restarts(other)
        if "call" in fault:
            fleet.hang.write_text(str(worker))  # the other process's may still be at what a test before left to it
        else:
            os.kill(worker, signal.SIGSTOP)  # only SIGKILL ends it, and that is what its server sends
        try:
            ids = render(one, messages, cache_salt=fault)  # whose windows no other request had encoded
            assert outcomes(other) - before == Counter({LATE: 1})
        finally:
            fleet.hang.unlink(missing_ok=True)
        assert ids == render(other, messages, **OFF)
        assert_recovered(one, worker, messages)
        assert restarts(other) == started + 1


@pytest.mark.parametrize("fault", ["killed", "hanging"])
def test_a_redis_that_is_gone_for_a_while(fault: str, fleet: Fleet) -> None:
    messages, salt = by_user(fault, recorded()), f"redis {fault}"
    gone, back = {
        "killed": (fleet.redis.kill, fleet.redis.start),
        "hanging": (fleet.redis.pause, fleet.redis.go_on),
    }[fault]
    with fleet.clients() as clients:
        one, other = clients.values()
        identity, before, counted = removed_record(other, messages, salt), errors(other), outcomes(other)
        gone()
        try:
            ids = render(one, messages, cache_salt=salt)
            assert outcomes(other) - counted == Counter({CHANGED: 1})
            assert ids == render(other, messages)
            assert [look_up(other, identity, whose).status_code for whose in (salt, "nobody")] == [503, 503]
            wait_for(lambda: all(errors(other)[store] > before[store] for store in ("records", "embeddings")))
        finally:
            back()
        wait_for(lambda: look_up(other, identity, salt).status_code == 200)
        assert look_up(one, identity, salt).json() == look_up(other, identity, salt).json()
