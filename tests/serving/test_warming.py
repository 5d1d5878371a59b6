"""Warming, as far as no encoder is needed; tests/worker has the rest."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from lam_vllm.serving import warming
from lam_vllm.serving.limits import Limits
from lam_vllm.serving.warming import Warmed, Warming
from tests.serving.fakes import TEXT, Server, agent_messages, with_client

MESSAGES = agent_messages(TEXT)
NOTHING = {"done": True, "windows": 0, "encoded": 0, "remembered": 0, "seconds": 0.0}


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        ({}, 400, "exactly one of messages and text"),
        ({"messages": MESSAGES, "text": TEXT}, 400, "exactly one of messages and text"),
        ({"text": TEXT, "lam": {"min_tokens": -1}}, 400, "lam.min_tokens: -1 is not allowed"),
        ({"text": TEXT, "lam": {"profile": "guarded"}}, 400, "lam.profile: 'guarded' is not allowed"),
        ({"text": TEXT, "bogus": 1}, 422, "bogus"),
        ({"text": 1}, 422, "text"),
        ({"messages": "none"}, 422, "messages"),
    ],
)
def test_a_bad_request_is_refused_with_the_reason(body: dict[str, Any], status: int, why: str) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        answer = await client.post("/warm", json=body)
        assert answer.status_code == status
        assert why in str(answer.json()["detail"])

    with_client(Server(), use)


@pytest.mark.parametrize("body", [{"text": TEXT}, {"messages": MESSAGES}, {"messages": []}, {"text": ""}])
def test_what_needs_no_embedding_is_done_at_once(body: dict[str, Any]) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        for options in ({}, {"lam": {"profile": "exact"}}, {"lam": False}):
            answer = await client.post("/warm", json={**body, **options, "wait": True})
            assert (answer.status_code, answer.json()) == (200, NOTHING)

    with_client(Server(), use)


def test_a_server_that_is_switched_off_warms_nothing() -> None:
    server = Server()
    server.service.admission.switch.turn(False)

    async def use(client: httpx.AsyncClient) -> None:
        answer = await client.post("/warm", json={"text": TEXT})
        assert (answer.status_code, answer.json()) == (200, NOTHING)

    with_client(server, use)


def beginning() -> list[Any]:
    """The calls that wait for room."""
    return [task for task in asyncio.all_tasks() if "Warming.begin" in repr(task.get_coro())]


def test_a_call_that_finds_no_room_in_its_time_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    release = asyncio.Event()

    async def warm(*_: Any) -> Warmed:
        await release.wait()
        return Warmed(done=True)

    monkeypatch.setattr(Warming, "_warm", warm)
    monkeypatch.setattr(warming, "MOST_WARMING", 2)
    server = Server(limits=Limits(time_limit_seconds=0.01))

    async def use(client: httpx.AsyncClient) -> None:
        async def code() -> int:
            return (await client.post("/warm", json={"text": TEXT})).status_code

        assert [await code() for _ in range(5)] == [202, 202, 503, 503, 503]
        await asyncio.sleep(0)
        assert beginning() == []
        release.set()
        await server.service.warming._tasks.ended()
        assert [await code() for _ in range(2)] == [202, 202]

    with_client(server, use)
