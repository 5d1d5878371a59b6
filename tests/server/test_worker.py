"""The encoder's worker process behind a real server: killed, busy, warmed, and asked by clients that go away."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import httpx

from lam_vllm.evaluation.corpus import find_run
from lam_vllm.types import Message
from tests.server.clients import Request, ask_chat
from tests.server.conftest import SERVED_NAME, LiveServer
from tests.server.talks import CORPUS, RUN, body, by_user, recorded, with_calls
from tests.server.waiting import stopped, wait_for

GUARDED = {"x-lam": '{"profile": "guarded"}'}
REQUESTS = 16
LOST_REQUESTS = 4
"""Fewer: each is computed again from nothing."""


def status(server: LiveServer) -> dict[str, Any]:
    with server.client() as client:
        found: dict[str, Any] = client.get("/v1/lam/status").json()
    return found


def metric(server: LiveServer, name: str) -> float:
    with server.client() as client:
        lines = client.get("/metrics").text.splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + " "))


def windows(server: LiveServer) -> dict[str, float]:
    """Windows that needed an embedding so far, by where it came from."""
    sources = ("fast", "canonical", "memo")
    return {source: metric(server, f'lam:encoder_windows_total{{source="{source}"}}') for source in sources}


def admitted(server: LiveServer, messages: list[Message], salt: str) -> list[int]:
    """The prompt's token ids, of a request that is admitted and rendered as a chat is, and then not prefilled."""
    headers = {**GUARDED, "x-lam-cache-salt": salt}
    with server.client() as client:
        fields = {"model": SERVED_NAME, **body("chat", messages)}
        answer = client.post("/v1/chat/completions/render", json=fields, headers=headers)
    assert answer.status_code == 200, answer.text
    ids: list[int] = answer.json()["token_ids"]
    return ids


def test_what_was_warmed_is_not_encoded_again(hooked: LiveServer) -> None:
    messages = recorded()
    fields = {"messages": messages, "lam": {"profile": "guarded"}, "cache_salt": "warm", "wait": True}
    before = windows(hooked)
    with hooked.client() as client:
        warmed = client.post("/v1/lam/warm", json=fields).json()
    after = windows(hooked)
    assert warmed["windows"] > 0
    assert after["fast"] - before["fast"] > 0
    assert ask_chat(hooked, Request(messages, "warm", {"profile": "guarded"})).prompt_tokens > 0
    found = windows(hooked)
    assert (found["fast"], found["canonical"]) == (after["fast"], after["canonical"])
    assert found["memo"] - after["memo"] >= after["fast"] - before["fast"]


def test_requests_over_which_the_worker_is_killed_are_answered(hooked: LiveServer) -> None:
    before, talks = status(hooked), [by_user(user, recorded()) for user in range(LOST_REQUESTS)]
    process = before["encoder"]["process"]
    with ThreadPoolExecutor(LOST_REQUESTS) as threads, stopped(process):
        answers = [threads.submit(admitted, hooked, talk, "killed") for talk in talks]
        wait_for(lambda: metric(hooked, "lam:queue_depth") == LOST_REQUESTS)
        os.kill(process, signal.SIGKILL)
        found = [answer.result() for answer in answers]
    after = status(hooked)
    assert after["requests"]["chat/changed/none"] == before["requests"].get("chat/changed/none", 0) + LOST_REQUESTS
    assert after["encoder"]["restarts"] == before["encoder"]["restarts"] + 1
    assert after["encoder"]["process"] != process
    assert after["prefix_breaks"]["defect"] == before["prefix_breaks"]["defect"] == 0
    assert metric(hooked, "lam:worker_restarts_total") == after["encoder"]["restarts"]
    for place in (0, -1):
        assert admitted(hooked, talks[place], "after") == found[place]


def test_what_a_client_that_went_away_had_asked_for_is_remembered(hooked: LiveServer) -> None:
    messages = by_user("gone", recorded())
    fields = {"model": SERVED_NAME, **body("chat", messages), "cache_salt": "gone"}

    async def leave() -> None:
        async with httpx.AsyncClient(base_url=hooked.url, headers=hooked.headers, timeout=120) as client:
            asking = asyncio.create_task(client.post("/v1/chat/completions", json=fields, headers=GUARDED))
            await asyncio.to_thread(wait_for, lambda: metric(hooked, "lam:queue_depth") == 1)
            asking.cancel()
            await asyncio.wait([asking])

    with stopped(status(hooked)["encoder"]["process"]):
        asyncio.run(leave())
    wait_for(lambda: metric(hooked, "lam:queue_depth") == 0)
    before = windows(hooked)
    admitted(hooked, messages, "gone")
    assert windows(hooked) == before
    admitted(hooked, messages, "somebody else")
    assert windows(hooked)["fast"] > before["fast"]


def test_the_server_stays_healthy_while_long_requests_are_admitted(
    hooked: LiveServer, record_testsuite_property: Callable[[str, object], None]
) -> None:
    """By /tokenize, which admits as a chat does and has no limit of length; the runs share their windows."""
    messages = with_calls([{"role": "user", "content": "go"}, *find_run(CORPUS, RUN).messages])

    def tokenize(user: int) -> int:
        with hooked.client() as client:
            fields = {"model": SERVED_NAME, "messages": by_user(user, messages)}
            return client.post("/tokenize", json=fields, headers=GUARDED).status_code

    before, seconds = status(hooked), []
    with ThreadPoolExecutor(REQUESTS) as threads, httpx.Client(base_url=hooked.url) as client:
        asked = [threads.submit(tokenize, user) for user in range(REQUESTS)]
        while wait(asked, timeout=0.02).not_done:
            began = time.monotonic()
            assert client.get("/health").status_code == 200
            seconds.append(time.monotonic() - began)
    assert [each.result() for each in asked] == [200] * REQUESTS
    requests, restarts = status(hooked)["requests"], status(hooked)["encoder"]["restarts"]
    changed = "tokenize/changed/none"
    assert requests[changed] - before["requests"].get(changed, 0) == REQUESTS
    assert restarts == before["encoder"]["restarts"]
    record_testsuite_property("health_answers", len(seconds))
    record_testsuite_property("health_p99_ms", round(1000 * sorted(seconds)[math.ceil(0.99 * len(seconds)) - 1], 1))
    record_testsuite_property("health_max_ms", round(1000 * max(seconds), 1))
