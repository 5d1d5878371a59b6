"""POST /v1/lam/compact: a dry run beside an engine, the product in a server without one."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from lam_vllm.compactor import Compactor
from lam_vllm.config import CompactorConfig
from lam_vllm.errors import EncoderError
from lam_vllm.metrics import APIS
from lam_vllm.serving.limits import Limits
from lam_vllm.serving.options import Options
from lam_vllm.serving.rollout import Rollout
from lam_vllm.serving.work import Handler
from tests.serving.fakes import TEXT, Server, agent_messages, count_words, with_client

REPEATED = agent_messages(TEXT, TEXT)
SALT_HEADER = "x-lam-cache-salt"


def answer_of(server: Server, body: dict[str, Any], **headers: str) -> httpx.Response:
    """The answer to one call; `x_lam` stands for x-lam."""
    found: list[httpx.Response] = []

    async def use(client: httpx.AsyncClient) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        found.append(await client.post("/compact", json=body, headers=named))

    with_client(server, use)
    return found[0]


def requests(server: Server) -> dict[str, float]:
    """What was counted, zeros left out."""
    return {labels: count for labels, count in server.service.metrics.counts("requests").items() if count}


def test_a_dry_run_gives_what_a_request_would_get_and_leaves_no_trace_in_the_counts() -> None:
    server = Server()

    async def use(client: httpx.AsyncClient) -> None:
        result = (await client.post("/compact", json={"messages": REPEATED})).json()
        assert (result["outcome"], result["reason"]) == (None, None)
        assert requests(server) == {}
        assert result["messages"] == await server.ask(REPEATED)
        assert result["report"]["saved_tokens"] > 0
        assert server.service.metrics.counts("tokens_removed")["l0"] == result["report"]["removed_tokens"]["l0"]

    with_client(server, use)


@pytest.mark.parametrize("standalone", [False, True])
def test_each_decision_can_be_audited_by_its_record(standalone: bool) -> None:
    server = Server(standalone=standalone)

    async def use(client: httpx.AsyncClient) -> None:
        body = {"messages": REPEATED, "cache_salt": "tenant"}
        (entry,) = (await client.post("/compact", json=body)).json()["decisions"]
        decision, salt = entry["decision"], {SALT_HEADER: "tenant"}
        found = await client.get(f"/records/{entry['record']}", headers=salt)
        assert found.json()["text"] == TEXT[decision["start"] : decision["end"]]

    with_client(server, use)


BAD_OPTIONS: list[tuple[dict[str, str], Any, str]] = [
    ({}, {"min_token": 1}, "lam.min_token"),
    ({"x-lam": '{"profile": 1}'}, None, "x-lam.profile"),
]


@pytest.mark.parametrize("standalone", [False, True])
def test_options_come_by_both_carriers_and_bad_ones_are_rejected_by_name(standalone: bool) -> None:
    server = Server(standalone=standalone)

    async def use(client: httpx.AsyncClient) -> None:
        body: dict[str, Any] = {"messages": REPEATED, "lam": {"min_tokens": 10_000}}
        assert (await client.post("/compact", json=body)).json()["decisions"] == []
        for headers, lam, name in BAD_OPTIONS:
            answer = await client.post("/compact", json={"messages": REPEATED, "lam": lam}, headers=headers)
            assert answer.status_code == 400
            assert answer.json()["detail"].startswith(f"{name}:")
        assert (await client.post("/compact", json={"messages": REPEATED, "lamm": {}})).status_code == 422

    with_client(server, use)
    assert requests(server).get("compact/rejected/none", 0) == (2 if standalone else 0)


def test_a_dry_run_names_the_config_that_applied() -> None:
    result = answer_of(Server(mode="off", config=CompactorConfig()), {"messages": REPEATED, "lam": True}).json()
    assert result["config"]["profile"] == result["report"]["profile"] == "exact"


def test_a_model_may_have_options_of_its_own() -> None:
    options = Options("on", CompactorConfig(profile="exact", min_tokens=10_000), True)
    for standalone, model, decisions in ((False, "small", 0), (False, "large", 1), (True, "small", 0), (True, "?", 1)):
        server = Server(standalone=standalone, rollout=Rollout(1.0, {"small": options}))
        result = answer_of(server, {"messages": REPEATED, "model": model}).json()
        assert len(result["decisions"]) == decisions


@pytest.mark.parametrize(("error", "code"), [(ZeroDivisionError(), 500), (EncoderError("no memory"), 503)])
def test_a_dry_run_that_fails_says_what_kind_of_failure_it_was(
    monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    def fail(*_arguments: Any, **_options: Any) -> None:
        raise error

    monkeypatch.setattr(Compactor, "compact", fail)
    answer = answer_of(Server(), {"messages": REPEATED})
    assert answer.status_code == code
    assert answer.json()["detail"] == f"the compaction failed: {type(error).__name__}; see the server's log"


def blocked_lane(server: Server, use: Callable[[httpx.AsyncClient], Any]) -> None:
    """`use` a client while the lane in which compaction runs is taken."""
    release = threading.Event()

    async def run(client: httpx.AsyncClient) -> None:
        blocked = asyncio.create_task(server.service.pool.submit(lambda: release.wait(10)))
        await asyncio.sleep(0)
        await use(client)
        release.set()
        await blocked
        await server.service.admission.ended()

    with_client(server, run)


def test_a_dry_run_past_the_time_limit_is_a_503() -> None:
    async def use(client: httpx.AsyncClient) -> None:
        answer = await client.post("/compact", json={"messages": REPEATED})
        assert (answer.status_code, answer.json()) == (503, {"detail": "not done within 0.01 seconds"})

    blocked_lane(Server(limits=Limits(time_limit_seconds=0.01)), use)


def test_a_dry_run_that_was_refused_before_it_began_is_not_computed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[Any] = []
    monkeypatch.setattr(Compactor, "compact", lambda _self, messages, **_options: computed.append(messages))
    server = Server(limits=Limits(time_limit_seconds=0.01))

    async def use(client: httpx.AsyncClient) -> None:
        assert (await client.post("/compact", json={"messages": REPEATED})).status_code == 503
        await asyncio.sleep(0)  # a piece is taken back in the next step of the loop

    blocked_lane(server, use)
    server.service.pool.close()
    assert computed == []


def test_alone_an_answer_is_a_request_that_is_counted_with_its_tokens() -> None:
    server = Server(standalone=True)
    result = answer_of(server, {"messages": REPEATED}).json()
    assert (result["outcome"], result["reason"]) == ("changed", "none")
    assert requests(server) == {"compact/changed/none": 1}
    metrics, saved = server.service.metrics, result["report"]["saved_tokens"]
    prefilled = sum(count_words(message["content"]) for message in result["messages"])
    assert metrics.counts("prompt_tokens_prefilled")["compact"] == prefilled
    assert metrics.counts("prompt_tokens_original")["compact"] == prefilled + saved
    assert all(metrics.counts("prompt_tokens_original")[api] == 0 for api in APIS if api != "compact")
    assert metrics.counts("tokens_removed")["l0"] == result["report"]["removed_tokens"]["l0"]


def test_alone_a_conversation_is_known_from_turn_to_turn_and_what_it_breaks_is_counted() -> None:
    server = Server(standalone=True)
    longer = [*REPEATED, {"role": "assistant", "content": "done"}]
    results = [answer_of(server, {"messages": messages}).json() for messages in (REPEATED, longer)]
    assert [result["report"]["work"]["known_messages"] for result in results] == [0, len(REPEATED)]
    assert server.service.metrics.counts("tokens_removed")["l0"] == results[0]["report"]["removed_tokens"]["l0"]
    answer_of(server, {"messages": longer, "lam": {"min_tokens": 10_000}})
    breaks = server.service.metrics.counts("prefix_breaks")
    assert breaks == {"defect": 0, "failed_open": 0, "config_changed": 1, "client_changed": 0}


def test_alone_the_salt_keeps_conversations_apart() -> None:
    server = Server(standalone=True)
    answer_of(server, {"messages": REPEATED, "cache_salt": "one"})
    by_header = answer_of(server, {"messages": REPEATED}, x_lam_cache_salt="one").json()
    other = answer_of(server, {"messages": REPEATED, "cache_salt": "two"}).json()
    assert by_header["report"]["work"]["known_messages"] == len(REPEATED)
    assert other["report"]["work"]["known_messages"] == 0
    assert other["decisions"][0]["record"] != by_header["decisions"][0]["record"]


def test_alone_a_failure_gives_the_messages_as_they_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handler, "_compact", lambda *_: 1 / 0)
    server = Server(standalone=True)
    answer = answer_of(server, {"messages": REPEATED})
    assert answer.status_code == 200
    assert answer.json() == {
        "outcome": "failed_open", "reason": "internal_error", "messages": REPEATED, "decisions": [], "report": None,
        "config": None,
    }  # fmt: skip
    assert requests(server) == {"compact/failed_open/internal_error": 1}


def test_alone_a_request_past_the_time_limit_gives_the_messages_as_they_came() -> None:
    server = Server(standalone=True, limits=Limits(time_limit_seconds=0.01))

    async def use(client: httpx.AsyncClient) -> None:
        result = (await client.post("/compact", json={"messages": REPEATED})).json()
        assert (result["outcome"], result["reason"]) == ("failed_open", "time_limit")
        assert result["messages"] == REPEATED

    blocked_lane(server, use)


@pytest.mark.parametrize(
    ("lam", "outcome", "computed"), [("observe", "observed", True), ("off", "passed_through", False)]
)
def test_alone_a_request_may_ask_to_be_left_as_it_is(lam: str, outcome: str, computed: bool) -> None:
    server = Server(standalone=True)
    result = answer_of(server, {"messages": REPEATED, "lam": lam}).json()
    assert (result["outcome"], result["messages"]) == (outcome, REPEATED)
    assert (result["report"] is not None) == (result["decisions"] != []) == computed
    assert server.service.handler.records.bytes_used == 0


def test_alone_nothing_is_kept_of_a_request_that_says_so() -> None:
    server = Server(standalone=True)
    (entry,) = answer_of(server, {"messages": REPEATED, "lam": {"store": False}}).json()["decisions"]
    assert entry["record"] is None
    assert server.service.handler.records.bytes_used == 0


def test_alone_the_switch_wins_over_what_a_request_says() -> None:
    server = Server(standalone=True)
    server.service.admission.switch.turn(False)
    result = answer_of(server, {"messages": REPEATED, "lam": {"bogus": 1}}).json()
    assert (result["outcome"], result["reason"], result["messages"]) == ("passed_through", "off", REPEATED)


@pytest.mark.parametrize("standalone", [False, True])
def test_text_with_a_lone_surrogate_comes_back_as_it_was(standalone: bool) -> None:
    messages = agent_messages("\ud800 " + TEXT, "\ud800 " + TEXT)

    async def use(client: httpx.AsyncClient) -> None:
        body = json.dumps({"messages": messages})
        answer = await client.post("/compact", content=body, headers={"content-type": "application/json"})
        assert answer.json()["messages"][:4] == messages[:4]
        assert len(answer.json()["decisions"]) == 1

    with_client(Server(standalone=standalone), use)
