from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from lam_vllm.metrics import Metrics
from lam_vllm.serving.box import HEADER_LIMIT_BYTES, RequestBox, Settled, current_box, report_header
from lam_vllm.serving.middleware import LamMiddleware, carries_token
from lam_vllm.types import Report

REPORT = Report("exact", 1, "c" * 32, "p" * 32, 3, {"l0": 40, "l1": 2}, 12, 0.3, 0.25, 0, {"no_repeat": 2})


def event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def chat(**delta: Any) -> bytes:
    return event(choices=[{"index": 0, "delta": delta}])


NO_TOKEN = {
    "chat role": chat(role="assistant", content=""),
    "chat empty tool calls": chat(tool_calls=[], content=None),
    "chat usage": event(choices=[], usage={}),
    "chat end": b"data: [DONE]\n\n",
    "keep-alive": b": ping\n\n",
    "half an event": b'data: {"choices": [{"del',
    "responses created": b"event: response.created\n" + event(type="response.created", response={"text": {}}),
    "responses in progress": event(type="response.in_progress"),
    "responses message item": event(type="response.output_item.added", item={"type": "message", "content": []}),
    "responses part": event(type="response.content_part.added", part={"text": ""}),
    "responses empty delta": event(type="response.output_text.delta", delta=""),
    "messages start": event(type="message_start", message={"content": []}),
    "messages ping": event(type="ping"),
    "messages empty block": event(type="content_block_start", content_block={"type": "text", "text": ""}),
    "messages stop": event(type="message_delta", delta={"stop_reason": "end_turn"}),
    "type null": event(type=None),
    "type no string": event(type=3),
    "no type": event(delta="x"),
    "choices null": event(choices=None),
    "choices no list": event(choices=7),
    "choice null": event(choices=[None]),
    "delta no object": event(choices=[{"delta": "x"}]),
    "messages delta missing": event(type="content_block_delta"),
    "messages delta no object": event(type="content_block_delta", delta="x"),
    "messages block null": event(type="content_block_start", content_block=None),
    "responses item missing": event(type="response.output_item.added"),
    "responses delta missing": event(type="response.output_text.delta"),
}
TOKEN = {
    "chat text": chat(content="a"),
    "chat reasoning": chat(reasoning="a"),
    "chat tool call": chat(tool_calls=[{"index": 0, "function": {"name": "ls"}}]),
    "chat after its role": chat(role="assistant", content="") + chat(content=" "),
    "responses text": b"event: x\n" + event(type="response.output_text.delta", delta="a"),
    "responses reasoning": event(type="response.reasoning_text.delta", delta="a"),
    "responses call": event(type="response.output_item.added", item={"type": "function_call", "name": "ls"}),
    "responses arguments": event(type="response.function_call_arguments.delta", delta="{"),
    "messages text": event(type="content_block_delta", delta={"type": "text_delta", "text": "a"}),
    "messages thinking": event(type="content_block_delta", delta={"type": "thinking_delta", "thinking": "a"}),
    "messages tool": event(type="content_block_start", content_block={"type": "tool_use", "name": "ls"}),
    "messages arguments": event(type="content_block_delta", delta={"partial_json": "{"}),
}


@pytest.mark.parametrize("name", NO_TOKEN)
def test_bookkeeping_events_are_not_tokens(name: str) -> None:
    assert not carries_token(NO_TOKEN[name])


@pytest.mark.parametrize("name", TOKEN)
def test_the_first_generated_characters_are_a_token_on_every_api(name: str) -> None:
    assert carries_token(TOKEN[name])


class Server:
    """A small app under the middleware; `seen` holds the box of each request, as a handler finds it in its task."""

    def __init__(self, authorized: bool = True) -> None:
        self.registry = CollectorRegistry()
        self.seen: list[RequestBox] = []
        self.go_on = asyncio.Event()
        routes = [
            Route(path, handler, methods=["POST"])
            for path, handler in (
                ("/v1/chat/completions", self.stream),
                ("/v1/responses", self.plain),
                ("/v1/messages/count_tokens", self.plain),
                ("/tokenize", self.plain),
                ("/off", self.off),
            )
        ]
        app = Starlette(routes=routes)
        app.add_middleware(LamMiddleware, metrics=Metrics(self.registry), authorized=lambda _scope: authorized)
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server")

    async def hook(self) -> None:
        box = current_box.get()
        assert box is not None
        assert not box.response_started
        box.outcome = "changed"
        box.settled.append(Settled("changed", "none", 130, 100, 0.0015, REPORT))
        self.seen.append(box)

    async def plain(self, request: Request) -> JSONResponse:
        await asyncio.create_task(self.hook())  # vLLM runs handlers in tasks of their own
        return JSONResponse({})

    async def off(self, request: Request) -> JSONResponse:
        return JSONResponse({"box": current_box.get() is not None})

    async def stream(self, request: Request) -> StreamingResponse:
        await asyncio.create_task(self.hook())

        async def pieces() -> AsyncIterator[bytes]:
            box = current_box.get()
            assert box is not None
            assert box.response_started
            yield NO_TOKEN["chat role"]
            assert self.tokens_timed() is None
            yield TOKEN["chat text"]
            assert self.tokens_timed() == 1
            yield TOKEN["chat text"]

        return StreamingResponse(pieces(), media_type="text/event-stream")

    def tokens_timed(self) -> float | None:
        labels = {"api": "chat", "outcome": "changed"}
        return self.registry.get_sample_value("lam:time_to_first_token_seconds_count", labels)


def post(path: str, headers: dict[str, str] | None = None, authorized: bool = True) -> tuple[httpx.Response, Server]:
    async def run() -> tuple[httpx.Response, Server]:
        server = Server(authorized)
        async with server.client as client:
            return await client.post(path, headers=headers), server

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("path", "api"),
    [
        ("/v1/chat/completions", "chat"),
        ("/v1/responses", "responses"),
        ("/v1/messages/count_tokens", "messages"),
        ("/tokenize", "tokenize"),
    ],
)
def test_the_hook_finds_the_headers_and_the_api_in_its_task_and_its_report_becomes_a_header(
    path: str, api: str
) -> None:
    response, server = post(path, {"X-Lam": "off", "x-lam-cache-salt": "s"})
    box = server.seen[0]
    assert (box.api, box.options_header, box.salt_header, box.authorized) == (api, "off", "s", True)
    report = json.loads(response.headers["x-lam-report"])
    assert report == {
        "outcome": "changed",
        "original_tokens": 130,
        "prefilled_tokens": 100,
        "milliseconds": 1.5,
        "profile": "exact",
        "algorithm": 1,
        "removed_tokens": {"l0": 40, "l1": 2},
        "stub_tokens": 12,
        "delta_hat": 0.25,
        "prefix": "p" * 32,
        "reasons": {"no_repeat": 2},
    }


def test_time_to_first_token_starts_at_the_first_generated_characters_and_is_counted_once() -> None:
    response, server = post("/v1/chat/completions")
    assert response.content == NO_TOKEN["chat role"] + 2 * TOKEN["chat text"]
    assert server.tokens_timed() == 1


def test_a_request_that_the_hook_never_saw_is_answered_as_without_the_plugin() -> None:
    response, server = post("/off")
    assert response.json() == {"box": True}
    assert "x-lam-report" not in response.headers
    assert server.tokens_timed() is None


def test_an_event_that_cannot_be_read_reaches_the_client_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    too_deep = b"data: " + 100_000 * b"[" + b"\n\n"

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        box = current_box.get()
        assert box is not None
        box.outcome = "changed"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for body in (too_deep, too_deep, TOKEN["chat text"]):
            await send({"type": "http.response.body", "body": body, "more_body": True})

    registry, sent = CollectorRegistry(), []

    async def send(message: Any) -> None:
        sent.append(message.get("body"))

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    middleware = LamMiddleware(app, metrics=Metrics(registry), authorized=lambda _scope: True)
    for _ in range(2):
        asyncio.run(middleware({"type": "http", "path": "/v1/chat/completions", "headers": []}, receive, send))
    assert sent == 2 * [None, too_deep, too_deep, TOKEN["chat text"]]
    labels = {"api": "chat", "outcome": "changed"}
    assert registry.get_sample_value("lam:time_to_first_token_seconds_count", labels) is None
    assert len(caplog.records) == 1


def test_a_missing_key_is_known_in_the_box() -> None:
    _, server = post("/tokenize", authorized=False)
    assert not server.seen[0].authorized


def test_nothing_of_a_request_is_left_behind() -> None:
    post("/tokenize")
    assert current_box.get() is None


def test_the_report_header_sums_a_batch_and_stays_ascii_and_short() -> None:
    crowded = Report(
        "guarded", 1, "c" * 32, "p" * 32, 3, {"l0": 1}, 1, 0.3, 0.25, 0, {f"{i:050}": 10**9 for i in range(30)}
    )
    header = report_header([Settled("changed", "none", 130, 100, 0.5, crowded)] * 3)
    values = json.loads(header.decode("ascii"))
    assert len(header) <= HEADER_LIMIT_BYTES
    assert (values["original_tokens"], values["prefilled_tokens"], values["stub_tokens"]) == (390, 300, 3)
