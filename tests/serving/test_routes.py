"""Status, switch, look-up tool, and warming; the other routes have files of their own."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from fastapi import HTTPException

from lam_vllm.config import CompactorConfig
from lam_vllm.messages import LOOK_UP_TOOL
from lam_vllm.serving.limits import Limits
from lam_vllm.serving.options import Options
from lam_vllm.serving.rollout import Rollout
from lam_vllm.serving.routes.asked import within_limit
from lam_vllm.serving.service import Service
from lam_vllm.serving.warming import Warmed, Warming
from tests.serving.fakes import TEXT, Server, agent_messages, with_client

REPEATED = agent_messages(TEXT, TEXT)


def test_status_says_what_applies_and_what_was_counted() -> None:
    server = Server()

    async def use(client: httpx.AsyncClient) -> None:
        await server.ask(REPEATED)
        status = (await client.get("/status")).json()
        assert status["default"] == "on"
        assert status["profile"] == status["config"]["profile"] == "exact"
        assert status["encoder"]["name"] is None
        assert "--lam-encoder" in status["encoder"]["reason"]
        assert status["requests"]["chat/changed/none"] == 1
        assert sum(status["requests"].values()) == 1
        assert status["prefix_breaks"]["defect"] == 0
        assert status["store_errors"] == {"records": 0, "embeddings": 0, "index": 0}
        assert status["index"] == {"kept": False, "bytes": 0, "max_bytes": 0}
        assert status["hint"] is None

    with_client(server, use)


def test_status_says_where_text_is_kept_and_how_far_the_rollout_is() -> None:
    server = Server(rollout=Rollout(0.25, {"small": Options("observe", CompactorConfig(profile="exact"), True)}))

    async def use(client: httpx.AsyncClient) -> None:
        await client.post("/compact", json={"messages": REPEATED})
        status = (await client.get("/status")).json()
        kept = status["store"]["bytes"]
        assert kept > 0
        assert status["store"] == {
            "kept": True, "kind": "memory", "url": None, "bytes": kept, "max_bytes": 64_000_000,
            "retention_seconds": 604_800.0,
        }  # fmt: skip
        assert (status["store_bytes"], status["canary"], status["models"]) == (kept, 0.25, ["small"])
        assert (status["processes"], status["switched_on"]) == (1, True)

    with_client(server, use)


def test_status_shows_no_password() -> None:
    server = Server()
    store = replace(server.store, url="rediss://lam:hunter2@cache.example:6380/1")
    server.service = replace(server.service, settings=replace(server.service.settings, store=store))

    async def use(client: httpx.AsyncClient) -> None:
        answer = await client.get("/status")
        assert "hunter2" not in answer.text
        assert answer.json()["store"]["kind"] == "redis"
        assert "cache.example:6380" in answer.json()["store"]["url"]

    with_client(server, use)


def test_status_hints_at_tool_output_in_user_messages() -> None:
    server = Server()
    talk = 3 * [{"role": "assistant", "content": "ls"}, {"role": "user", "content": "x" * 500}]

    async def use(client: httpx.AsyncClient) -> None:
        await server.ask(talk)
        assert "tool+user" in (await client.get("/status")).json()["hint"]

    with_client(server, use)


def test_the_look_up_tool_is_an_openai_function_over_result_and_lines() -> None:
    async def use(client: httpx.AsyncClient) -> None:
        schema = (await client.get("/tool")).json()
        assert schema["function"]["name"] == LOOK_UP_TOOL
        assert schema["function"]["parameters"]["required"] == ["result", "first_line", "last_line"]

    with_client(Server(), use)


def test_the_switch_stops_and_restarts_compaction() -> None:
    server = Server()

    async def use(client: httpx.AsyncClient) -> None:
        assert (await client.post("/enabled", json={"enabled": False})).json() == {"enabled": False}
        assert await server.ask(REPEATED) is REPEATED
        assert (await client.get("/status")).json()["switched_on"] is False
        await client.post("/enabled", json={"enabled": True})
        assert await server.ask(REPEATED) is not REPEATED

    with_client(server, use)


def test_a_switch_that_cannot_be_set_is_a_503_and_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()

    def full(_on: bool) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(server.service.admission.switch, "turn", full)

    async def use(client: httpx.AsyncClient) -> None:
        answer = await client.post("/enabled", json={"enabled": False})
        assert answer.status_code == 503
        assert "No space left on device" in answer.json()["detail"]
        assert (await client.get("/status")).json()["switched_on"] is True

    with_client(server, use)


def endless(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let warming never end."""

    async def warm(*_: Any) -> Warmed:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    monkeypatch.setattr(Warming, "_warm", warm)


def test_warming_that_is_waited_for_has_the_time_limit_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(limits=Limits(time_limit_seconds=0.01))
    endless(server, monkeypatch)

    async def use(client: httpx.AsyncClient) -> None:
        answer = await client.post("/warm", json={"text": TEXT, "wait": True})
        assert (answer.status_code, answer.json()) == (503, {"detail": "not done within 0.01 seconds"})
        assert (await client.post("/warm", json={"text": TEXT})).status_code == 202

    with_client(server, use)


def test_warming_that_is_waited_for_ends_when_the_server_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    endless(server, monkeypatch)

    async def use(client: httpx.AsyncClient) -> None:
        waiting = asyncio.create_task(client.post("/warm", json={"text": TEXT, "wait": True}))
        while not server.service.warming._tasks:
            await asyncio.sleep(0)
        server.service.stopping.set()
        async with asyncio.timeout(10):
            answer = await waiting
        assert (answer.status_code, answer.json()) == (503, {"detail": "the server is going down"})

    with_client(server, use)


def test_work_that_nobody_waits_for_any_more_goes_on() -> None:
    service = SimpleNamespace(
        stopping=asyncio.Event(), settings=SimpleNamespace(limits=Limits(time_limit_seconds=0.001))
    )
    ended: list[bool] = []

    async def run() -> None:
        release = asyncio.Event()

        async def work() -> None:
            await release.wait()
            ended.append(True)

        task = asyncio.create_task(work())
        with pytest.raises(HTTPException):
            await within_limit(cast("Service", service), task)
        release.set()
        await task

    asyncio.run(run())
    assert ended == [True]
