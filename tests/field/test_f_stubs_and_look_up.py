"""Group F: references work with no tool, no store and no buffering, and every option does what it says."""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from lam_vllm import Compactor, CompactorConfig, MissingExtraError, OptionError, look_up, make_config
from lam_vllm.encoders.base import Encoder
from lam_vllm.messages import LOOK_UP_TOOL
from lam_vllm.metrics import Metrics
from lam_vllm.records import LookUp, open_records
from lam_vllm.serving.box import Settled, current_box
from lam_vllm.serving.middleware import LamMiddleware
from lam_vllm.stores import StoreSettings
from tests.serving.fakes import KEY, Server, with_client

from .agent import LINES, MODULE, OTHER, Make, agent, emitted, listing, numbered

LISTING = listing("berth", "crew", "tide")
EDITED = MODULE.replace("timeout=30)", "timeout=31)")
REPEATED = agent(MODULE, OTHER, MODULE, tool="read")
WEEK = 604_800.0
STREAMED = {
    "/v1/chat/completions": b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n',
    "/v1/responses": b'data: {"type":"response.output_text.delta","delta":"a"}\n\n',
    "/v1/messages": b'data: {"type":"content_block_delta","delta":{"text":"a"}}\n\n',
}
"""An event with a token, of each API that streams."""


def calls(*names: str) -> dict[str, Any]:
    made = [{"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": "{}"}}
            for n, name in enumerate(names)]  # fmt: skip
    return {"role": "assistant", "content": None, "tool_calls": made}


def through_hook(server: Server, messages: Any, **fields: Any) -> tuple[SimpleNamespace, Any]:
    """The request as the hook left it, and the messages that reached the renderer."""
    request = SimpleNamespace(**copy.deepcopy(fields))
    asyncio.run(server.renderer.preprocess_chat(request, messages))
    return request, server.renderer.rendered[-1]


def test_f72_no_reference_speaks_of_a_tool_or_of_an_id(make: Make) -> None:
    texts = [numbered(LINES), numbered(["import sails", *LINES]), LISTING, MODULE, EDITED, "tick tack tock\n" * 60]
    stubs = [cut.stub for cut in make(directory_aliases=True).compact(agent(*texts, *texts)).decisions]
    assert len(stubs) >= 6
    assert not any(re.search(rf"{LOOK_UP_TOOL}|\bcall|\bretriev|\bfetch|\bid\b|[0-9a-f]{{8}}", stub) for stub in stubs)


@pytest.mark.parametrize("offered", [None, [], [{"type": "function", "function": {"name": "read"}}]])
def test_f72_no_tool_is_added_to_a_request(offered: Any) -> None:
    fields = {"tools": offered, "tool_choice": None, "stream": True, "model": "smollm2"}
    request, rendered = through_hook(Server(), REPEATED, **fields)
    assert vars(request) == fields
    assert [message["role"] for message in rendered] == [message["role"] for message in REPEATED]
    assert rendered[:-1] == REPEATED[:-1]
    assert len(rendered[-1]["content"]) < len(MODULE) / 4


def test_f72_what_a_model_looked_up_is_never_taken_away_again(make: Make) -> None:
    messages = [*agent(MODULE), calls(LOOK_UP_TOOL), {"role": "tool", "tool_call_id": "c0", "content": MODULE}]
    in_parts = [{"type": "text", "text": MODULE}]
    messages += [calls(LOOK_UP_TOOL), {"role": "tool", "tool_call_id": "c0", "content": in_parts}]
    compaction = make().compact(messages)
    assert compaction.messages is messages
    assert compaction.report.reasons["excluded_tool"] == 2


def test_f72_of_parallel_calls_only_the_look_up_is_left_alone(make: Make) -> None:
    results = [{"role": "tool", "tool_call_id": f"c{n}", "content": MODULE} for n in range(3)]
    compaction = make().compact([*agent(MODULE), calls("read", LOOK_UP_TOOL, "grep"), *results])
    assert [content == MODULE for content in emitted(compaction)] == [True, False, True, False]


@pytest.mark.parametrize("path", STREAMED)
def test_f73_every_event_of_a_stream_is_out_before_the_next_one_is_made(path: str) -> None:
    event = STREAMED[path]
    sent: list[MutableMapping[str, Any]] = []

    async def app(_scope: Any, _receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        box = current_box.get()
        assert box is not None
        box.outcome = "changed"
        box.settled.append(Settled("changed", "none", 130, 100, 0.001))
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number in range(5):
            await send({"type": "http.response.body", "body": event + b"%d" % number, "more_body": number < 4})
            assert len(sent) == 1 + number + 1

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("the body of a request is the server's to read")

    async def run() -> None:
        middleware = LamMiddleware(app, metrics=Metrics(CollectorRegistry()), authorized=lambda _scope: True)
        await middleware({"type": "http", "path": path, "headers": []}, receive, send)

    asyncio.run(run())
    assert [message["body"] for message in sent[1:]] == [event + b"%d" % number for number in range(5)]
    assert [name for name, _ in sent[0]["headers"]] == [b"content-type", b"x-lam-report"]


@pytest.mark.parametrize("stream", [True, False])
def test_f73_a_conversation_with_a_look_up_streams_as_it_would_have(stream: bool) -> None:
    messages = [*REPEATED, calls(LOOK_UP_TOOL), {"role": "tool", "tool_call_id": "c0", "content": MODULE}]
    request, rendered = through_hook(Server(), messages, stream=stream, n=1)
    assert vars(request) == {"stream": stream, "n": 1}
    assert rendered[-1] is messages[-1]


def test_f74_answers_need_no_store() -> None:
    normal, tiny, off, restarted = Server(), Server(), Server(), Server()
    tiny.service.handler.records = open_records(StoreSettings(None, 0, WEEK), KEY)
    expected = through_hook(normal, REPEATED)[1]
    assert normal.service.handler.records.bytes_used > 0
    assert through_hook(tiny, REPEATED)[1] == expected
    assert through_hook(off, REPEATED, lam={"store": False})[1] == expected
    assert [server.service.handler.records.bytes_used for server in (tiny, off)] == [0, 0]
    assert through_hook(restarted, [*REPEATED, *agent(OTHER)[2:]])[1][: len(expected)] == expected


def test_f74_text_whose_record_is_gone_still_stands_in_the_conversation(count_tokens: Callable[[str], int]) -> None:
    compaction = Compactor(make_config({"profile": "exact"}), count_tokens).compact(REPEATED)
    (cut,) = compaction.decisions
    records = open_records(StoreSettings(None, len(MODULE), WEEK), KEY)  # with its overhead the text is over the cap
    assert records.look_up("", records.put("", MODULE)) == LookUp(None, known=True)
    assert look_up(compaction.messages, cut.target_result, 1, len(LINES)) == MODULE


async def fetched(client: httpx.AsyncClient, identity: str, *salts: str) -> list[int]:
    """How the route answers to look-ups under these salts."""
    answers = [await client.get(f"/records/{identity}", headers={"x-lam-cache-salt": salt}) for salt in salts]
    assert all(answer.json() == {"id": identity, "text": MODULE} for answer in answers if answer.status_code == 200)
    return [answer.status_code for answer in answers]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> StoreSettings:
    url = None if request.param == "memory" else str(tmp_path / "rows.sqlite")
    return StoreSettings(url, 64_000_000, WEEK)


def test_f74_a_text_that_is_kept_no_more_is_gone_and_one_that_never_was_is_unknown(store: StoreSettings) -> None:
    server = Server(store=store)
    records = server.service.handler.records
    identity = records.put("a", MODULE)
    made_up = [identity[:-1] + ("0" if identity[-1] != "0" else "1"), identity[:-1], "0" * len(identity), "x"]

    async def use(client: httpx.AsyncClient) -> None:
        assert await fetched(client, identity, "a", "b", "") == [200, 404, 404]
        assert [await fetched(client, each, "a") for each in made_up] == [[404]] * 4
        assert records.forget("a") == 1
        assert await fetched(client, identity, "a", "b", "") == [410, 404, 404]

    with_client(server, use)
    assert server.service.metrics.counts("lookups") == {"found": 1, "expired": 1, "unknown": 8}
    server.service.close()


def test_f74_after_a_restart_a_text_is_there_or_gone_and_never_unknown(store: StoreSettings) -> None:
    before = Server(store=store)
    identity = before.service.handler.records.put("a", MODULE)
    before.service.close()
    after = Server(store=store)

    async def use(client: httpx.AsyncClient) -> None:
        assert await fetched(client, identity, "a", "b") == [410 if store.url is None else 200, 404]

    with_client(after, use)
    after.service.close()


EXACT, PAPER = {"profile": "exact"}, {"profile": "paper"}
OPTIONS: dict[str, tuple[dict[str, Any], Any]] = {
    "profile": (EXACT, "paper"),
    "threshold_cos": (PAPER, 1.0),
    "search": ({**PAPER, "threshold_cos": 0.1}, "banded"),  # which misses next to nothing at the usual threshold
    "observations": (EXACT, "tool+user"),
    "exclude_tools": (EXACT, ["read"]),
    "min_tokens": (EXACT, 10_000),
    "directory_aliases": (EXACT, True),
    "max_reference_distance_tokens": (EXACT, 400),
    "max_observation_bytes": (EXACT, 500),
    "max_windows": (PAPER, 1),
}
"""For each option those under which it is tried, and a value that is not its default."""


def compacted(options: dict[str, Any], count_tokens: Callable[[str], int], encoder: Encoder) -> tuple[Any, str]:
    """What becomes of a conversation under these options, and the digest that names them."""
    config = make_config(options)
    compactor = Compactor(config, count_tokens, None if config.profile == "exact" else encoder)
    messages = agent(MODULE, LISTING, OTHER, EDITED, MODULE)
    messages += [{"role": "assistant", "content": "Once more?"}, {"role": "user", "content": OTHER}]
    return compactor.compact(messages).messages, compactor.config_digest


@pytest.mark.parametrize("option", OPTIONS)
def test_f78_every_option_changes_what_is_emitted_and_what_names_it(
    option: str, count_tokens: Callable[[str], int], remembering: Encoder
) -> None:
    given, value = OPTIONS[option]
    default, its_digest = compacted(given, count_tokens, remembering)
    other, other_digest = compacted({**given, option: value}, count_tokens, remembering)
    assert other != default
    assert other_digest != its_digest


def test_f78_no_option_is_left_out_here() -> None:
    assert {*OPTIONS, "algorithm"} == set(CompactorConfig.model_fields)  # of the latter there is one value


@pytest.mark.parametrize("value", [0, 2, "1", None])
def test_f78_a_version_that_does_not_exist_is_not_replaced_by_one_that_does(value: Any) -> None:
    with pytest.raises(OptionError, match=r"algorithm.*an integer from 1 to 1"):
        make_config({"algorithm": value})


@pytest.mark.parametrize("profile", ["guarded", "paper"])
def test_f78_a_profile_that_cannot_work_is_an_error_and_not_another_profile(
    profile: str, count_tokens: Callable[[str], int]
) -> None:
    with pytest.raises(MissingExtraError, match=profile):
        Compactor(make_config({"profile": profile}), count_tokens)


def test_f78_the_profile_that_was_chosen_is_the_one_in_the_report(make: Make) -> None:
    compactor = make()
    report = compactor.compact(agent(MODULE)).report
    assert report.profile == compactor.config.profile
    assert report.config_digest == compactor.config_digest
