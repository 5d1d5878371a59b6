"""GET /v1/lam/records/{id} and DELETE /v1/lam/records: who may read and delete what."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from lam_vllm.pool import THREADS, Lane
from lam_vllm.serving.limits import Limits
from lam_vllm.stores import StoreError
from tests.serving.fakes import TEXT, Server, agent_messages, with_client

REPEATED = agent_messages(TEXT, TEXT)


def salted(salt: str) -> dict[str, str]:
    return {"x-lam-cache-salt": salt}


async def kept(client: httpx.AsyncClient, salt: str) -> str:
    """The id of a text that was removed under this salt."""
    answer = await client.post("/compact", json={"messages": REPEATED, "cache_salt": salt})
    (entry,) = answer.json()["decisions"]
    return str(entry["record"])


def lookups(server: Server) -> dict[str, float]:
    return server.service.metrics.counts("lookups")


def test_text_is_found_by_its_id_and_its_salt_alone() -> None:
    server = Server(standalone=True)

    async def use(client: httpx.AsyncClient) -> None:
        record = await kept(client, "one")
        assert (await client.get(f"/records/{record}", headers=salted("one"))).json()["id"] == record
        for foreign in (f"/records/{record}", "/records/unknown", f"/records/{'0' * len(record)}"):
            for headers in ({}, salted("two")):
                answer = await client.get(foreign, headers=headers)
                assert (answer.status_code, answer.json()) == (404, {"detail": "no such record"})
        assert lookups(server) == {"found": 1, "expired": 0, "unknown": 6}

    with_client(server, use)


def test_a_salt_is_the_same_in_the_body_and_in_the_header_whatever_its_script() -> None:
    server = Server(standalone=True)

    async def use(client: httpx.AsyncClient) -> None:
        record = await kept(client, "Mietshaus süd 東")
        in_bytes = [(b"x-lam-cache-salt", "Mietshaus süd 東".encode())]
        assert (await client.get(f"/records/{record}", headers=in_bytes)).status_code == 200
        assert (await client.delete("/records", headers=in_bytes)).json() == {"deleted": 1}

    with_client(server, use)


@pytest.mark.parametrize("standalone", [False, True])
def test_a_salt_in_a_header_is_the_same_on_every_route(standalone: bool) -> None:
    server = Server(standalone=standalone)

    async def use(client: httpx.AsyncClient) -> None:
        in_bytes = [(b"x-lam-cache-salt", "Mietshaus süd 東".encode())]
        answer = await client.post("/compact", json={"messages": REPEATED}, headers=in_bytes)
        (entry,) = answer.json()["decisions"]
        assert (await client.get(f"/records/{entry['record']}", headers=in_bytes)).status_code == 200
        assert (await client.delete("/records", headers=in_bytes)).json() == {"deleted": 1}
        assert server.service.handler.records.bytes_used == 0

    with_client(server, use)


def test_text_that_utf8_has_no_place_for_is_handed_out_as_it_was() -> None:
    async def use(client: httpx.AsyncClient) -> None:
        odd = f"half a character \ud800\n{TEXT}"
        body = json.dumps({"messages": agent_messages(odd, odd)})
        answer = await client.post("/compact", content=body, headers={"content-type": "application/json"})
        (entry,) = answer.json()["decisions"]
        found = await client.get(f"/records/{entry['record']}")
        decision = entry["decision"]
        assert (found.status_code, found.json()["id"]) == (200, entry["record"])
        assert found.json()["text"] == odd[decision["start"] : decision["end"]]
        assert "\ud800" in found.json()["text"]

    with_client(Server(standalone=True), use)


def with_a_full_lane(server: Server, lane: Lane, use: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
    """`use` a client while every thread of this lane is taken, and wait for those threads then."""
    release, pool = threading.Event(), server.service.pool

    async def run(client: httpx.AsyncClient) -> None:
        taken = [asyncio.create_task(pool.submit(lambda: release.wait(60), lane)) for _ in range(THREADS[lane])]
        await asyncio.sleep(0)
        try:
            await use(client)
        finally:
            release.set()
            await asyncio.gather(*taken)
            await pool.submit(lambda: None, lane)

    with_client(server, run)


def test_no_look_up_and_no_deletion_waits_for_work_that_waits_for_the_encoder() -> None:
    server = Server(standalone=True, limits=Limits(time_limit_seconds=10))

    async def use(client: httpx.AsyncClient) -> None:
        record = await kept(client, "")
        assert (await client.get(f"/records/{record}")).status_code == 200
        assert (await client.delete("/records")).json() == {"deleted": 1}

    with_a_full_lane(server, "background", use)


def test_a_deletion_that_was_refused_before_it_began_is_not_made_later() -> None:
    server = Server(standalone=True, limits=Limits(time_limit_seconds=0.05))
    records = server.service.handler.records
    records.put("", "kept")

    async def use(client: httpx.AsyncClient) -> None:
        assert (await client.delete("/records")).status_code == 503
        await asyncio.sleep(0)  # a piece is taken back in the next step of the loop

    with_a_full_lane(server, "store", use)
    assert records.bytes_used > 0


def test_what_a_tenant_deletes_is_gone_for_it_and_unknown_to_others() -> None:
    server = Server(standalone=True)

    async def use(client: httpx.AsyncClient) -> None:
        one, two = await kept(client, "one"), await kept(client, "two")
        answers = [await client.delete("/records", headers=salted("one")) for _ in range(2)]
        assert [answer.json() for answer in answers] == [{"deleted": 1}, {"deleted": 0}]
        gone = await client.get(f"/records/{one}", headers=salted("one"))
        assert (gone.status_code, gone.json()) == (410, {"detail": "this text is not kept any more"})
        assert (await client.get(f"/records/{one}", headers=salted("two"))).status_code == 404
        assert (await client.get(f"/records/{two}", headers=salted("two"))).status_code == 200
        assert lookups(server) == {"found": 1, "expired": 1, "unknown": 1}

    with_client(server, use)


def test_without_a_salt_the_tenant_without_one_is_meant() -> None:
    server = Server(standalone=True)

    async def use(client: httpx.AsyncClient) -> None:
        one, nobodys = await kept(client, "one"), await kept(client, "")
        assert (await client.delete("/records")).json() == {"deleted": 1}
        assert (await client.get(f"/records/{nobodys}", headers=salted(""))).status_code == 410
        assert (await client.get(f"/records/{one}", headers=salted("one"))).status_code == 200

    with_client(server, use)


def test_a_store_that_cannot_answer_is_a_503_and_no_lost_text(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(standalone=True)

    def fail(*_: Any) -> Any:
        raise StoreError("connection refused")

    monkeypatch.setattr(server.service.handler.records, "look_up", fail)
    monkeypatch.setattr(server.service.handler.records, "forget", fail)

    async def use(client: httpx.AsyncClient) -> None:
        for answer in (await client.get("/records/any"), await client.delete("/records")):
            assert answer.status_code == 503
            assert answer.json() == {"detail": "the store cannot answer now; see the server's log"}
        assert sum(lookups(server).values()) == 0

    with_client(server, use)
