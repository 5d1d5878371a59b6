"""GET /v1/lam/records/{id} and DELETE /v1/lam/records: who may read and delete what."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

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
            assert answer.json() == {"detail": "the store cannot answer now: connection refused"}
        assert sum(lookups(server).values()) == 0

    with_client(server, use)
