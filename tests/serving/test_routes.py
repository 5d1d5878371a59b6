from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from lam_vllm.compactor import Compactor
from lam_vllm.config import CompactorConfig
from lam_vllm.messages import LOOK_UP_TOOL
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
        assert status["requests"] == {"chat/changed/none": 1}
        assert status["prefix_breaks"]["defect"] == 0
        assert status["store_bytes"] > 0
        assert status["hint"] is None

    with_client(server, use)


def test_status_hints_at_tool_output_in_user_messages() -> None:
    server = Server()
    talk = 3 * [{"role": "assistant", "content": "ls"}, {"role": "user", "content": "x" * 500}]

    async def use(client: httpx.AsyncClient) -> None:
        await server.ask(talk)
        assert "tool+user" in (await client.get("/status")).json()["hint"]

    with_client(server, use)


def test_a_dry_run_gives_what_a_request_would_get_and_leaves_no_trace_in_the_counts() -> None:
    server = Server()

    async def use(client: httpx.AsyncClient) -> None:
        result = (await client.post("/compact", json={"messages": REPEATED})).json()
        assert result["messages"] == await server.ask(REPEATED)
        assert result["report"]["saved_tokens"] > 0
        assert server.service.metrics.counts("tokens_removed")["l0"] == result["report"]["removed_tokens"]["l0"]

    with_client(server, use)


def test_each_decision_of_a_dry_run_can_be_audited_by_its_record() -> None:
    server = Server()

    async def use(client: httpx.AsyncClient) -> None:
        body = {"messages": REPEATED, "cache_salt": "tenant"}
        (entry,) = (await client.post("/compact", json=body)).json()["decisions"]
        decision, salt = entry["decision"], {"x-lam-cache-salt": "tenant"}
        found = await client.get(f"/records/{entry['record']}", headers=salt)
        assert found.json()["text"] == TEXT[decision["start"] : decision["end"]]
        assert (await client.get(f"/records/{entry['record']}")).status_code == 404
        assert (await client.get("/records/unknown", headers=salt)).status_code == 404
        assert server.service.metrics.counts("lookups") == {"found": 1, "unknown": 2}

    with_client(server, use)


BAD_OPTIONS: list[tuple[dict[str, str], Any, str]] = [
    ({}, {"min_token": 1}, "lam.min_token"),
    ({"x-lam": '{"profile": 1}'}, None, "x-lam.profile"),
]


def test_a_dry_run_takes_options_by_both_carriers_and_rejects_bad_ones_by_name() -> None:
    async def use(client: httpx.AsyncClient) -> None:
        body: dict[str, Any] = {"messages": REPEATED, "lam": {"min_tokens": 10_000}}
        assert (await client.post("/compact", json=body)).json()["decisions"] == []
        for headers, lam, name in BAD_OPTIONS:
            answer = await client.post("/compact", json={"messages": REPEATED, "lam": lam}, headers=headers)
            assert answer.status_code == 400
            assert answer.json()["detail"].startswith(f"{name}:")
        assert (await client.post("/compact", json={"messages": REPEATED, "lamm": {}})).status_code == 422

    with_client(Server(), use)


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


def test_a_dry_run_names_the_config_that_applied() -> None:
    async def use(client: httpx.AsyncClient) -> None:
        result = (await client.post("/compact", json={"messages": REPEATED, "lam": True})).json()
        assert result["config"]["profile"] == result["report"]["profile"] == "exact"

    with_client(Server(mode="off", config=CompactorConfig()), use)


def test_a_dry_run_that_fails_says_what_kind_of_failure_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Compactor, "compact", lambda *_args, **_options: 1 / 0)

    async def use(client: httpx.AsyncClient) -> None:
        answer = await client.post("/compact", json={"messages": REPEATED})
        assert answer.status_code == 500
        assert answer.json()["detail"] == "the compaction failed: ZeroDivisionError; see the server's log"

    with_client(Server(), use)


def test_text_with_a_lone_surrogate_comes_back_as_it_was() -> None:
    messages = agent_messages("\ud800 " + TEXT)

    async def use(client: httpx.AsyncClient) -> None:
        body = json.dumps({"messages": messages})
        answer = await client.post("/compact", content=body, headers={"content-type": "application/json"})
        assert answer.json()["messages"] == messages

    with_client(Server(), use)
