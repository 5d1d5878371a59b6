"""The field in the usage of an answer: where it stands, and that nothing else of the answer changes or waits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from lam_vllm.metrics import Metrics
from lam_vllm.serving.asgi import Event
from lam_vllm.serving.box import Settled, current_box
from lam_vllm.serving.middleware import LamMiddleware
from lam_vllm.serving.usage import FIELD

SETTLED = (Settled("changed", "none", 70, 50, 0.0), Settled("changed", "none", 60, 50, 0.0))
STREAM = (b"content-type", b"text/event-stream; charset=utf-8")
JSON = (b"content-type", b"application/json")
PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "tokenize": "/tokenize",
}


def dumped(**fields: Any) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def event(**fields: Any) -> bytes:
    return b"data: " + dumped(**fields) + b"\n\n"


def chunk(text: str | None, prompt: int | None = None, **usage: Any) -> bytes:
    choices = [] if text is None else [{"index": 0, "delta": {"content": text}}]
    told = {} if prompt is None else {"usage": {"prompt_tokens": prompt, "completion_tokens": 1, **usage}}
    return event(id="c", object="chat.completion.chunk", choices=choices, **told)


def ended(kind: str, **usage: Any) -> bytes:
    fields = {"type": kind, "response": {"usage": {"input_tokens": 100, **usage}}, "sequence_number": 7}
    return b"event: " + kind.encode() + b"\n" + event(**fields)


DONE = b"data: [DONE]\n\n"
CHAT = [chunk("", 100), b": ping\n\n", chunk('né "usage":{', 100), chunk(None, 100), DONE]
CHAT_WITH_FIELD = [*CHAT[:3], chunk(None, 100, **{FIELD: 130}), DONE]
RESPONSES = [
    b"event: response.created\n" + event(type="response.created", response={"usage": None}),
    b"event: x\n" + event(type="response.output_text.delta", delta='a "usage"'),
    ended("response.completed"),
]
RESPONSES_WITH_FIELD = [*RESPONSES[:2], ended("response.completed", **{FIELD: 130})]


@dataclass
class Exchange:
    """What an application sent under the middleware, what the client got, and the bytes it had after each message."""

    given: list[Event]
    got: list[Event] = field(default_factory=list)
    after: list[bytes] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.got)


def exchange(api: str, *given: Event, wish: bool = True, settled: Sequence[Settled] = SETTLED) -> Exchange:
    done = Exchange(list(given))

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        box = current_box.get()
        assert box is not None
        box.wants_usage = wish
        box.settled += settled
        for message in done.given:
            await send(message)
            done.after.append(done.body)

    async def send(message: Event) -> None:
        done.got.append(message)

    async def receive() -> Event:
        raise AssertionError("nothing is read")

    middleware = LamMiddleware(app, metrics=Metrics(CollectorRegistry()), authorized=lambda _scope: True)
    asyncio.run(middleware({"type": "http", "path": PATHS[api], "headers": []}, receive, send))
    return done


def messages(pieces: list[bytes], *headers: tuple[bytes, bytes], status: int = 200) -> list[Event]:
    """An answer of these pieces, as an application sends it."""
    bodies = [
        {"type": "http.response.body", "body": piece, "more_body": place + 1 < len(pieces)}
        for place, piece in enumerate(pieces)
    ]
    return [{"type": "http.response.start", "status": status, "headers": list(headers)}, *bodies]


def events_in(stream: bytes) -> int:
    """How many events a client can have read."""
    return stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n").count(b"\n\n")


STREAMS = {
    "chat": ("chat", CHAT, CHAT_WITH_FIELD),
    "chat without usage": ("chat", [chunk("a"), DONE], [chunk("a"), DONE]),
    "chat usage null": ("chat", [event(object="chat.completion.chunk", choices=[], usage=None)], None),
    "responses": ("responses", RESPONSES, RESPONSES_WITH_FIELD),
    "responses incomplete": (
        "responses",
        [ended("response.incomplete")],
        [ended("response.incomplete", **{FIELD: 130})],
    ),
    "responses failed": ("responses", [ended("response.failed")], None),
    "responses without usage": ("responses", [event(type="response.completed", response={"usage": None})], None),
    "responses null": ("responses", [event(type="response.completed", response=None, usage=1)], None),
    "messages": ("messages", [event(type="message_delta", usage={"input_tokens": 3})], None),
    "not an object": ("chat", [event() + b'data: ["usage"]\n\n'], None),
    "not JSON": ("chat", [b'data: {"usage"\n\n'], None),
    "too deep": ("chat", [b'data: {"usage":' + 100_000 * b"[" + b"\n\n"], None),
    "not UTF-8": ("chat", [chunk(None, 100).replace(b'"c"', b'"\xe9"')], None),
    "half a pair": ("chat", [chunk(None, 100).replace(b'"c"', rb'"\ud800"')], None),
    "too large a number": ("chat", [chunk(None, 100).replace(b'"c"', b"1e999")], None),
    "prompt no number": ("chat", [chunk(None, 100).replace(b"100", b'"100"')], None),
    "data in two lines": ("chat", [b'data: {"usage":\ndata: {"prompt_tokens":1}}\n\n'], None),
    "cut off": ("chat", [chunk("a"), chunk(None, 100)[:-9]], None),
    "last line break missing": ("chat", [chunk(None, 100)[:-1]], [chunk(None, 100, **{FIELD: 130})[:-1]]),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_has_the_field_in_its_final_usage_and_is_the_same_otherwise(name: str) -> None:
    api, pieces, expected = STREAMS[name]
    done = exchange(api, *messages(pieces, STREAM))
    assert done.body == b"".join(pieces if expected is None else expected)
    assert not done.got[-1]["more_body"]


@settings(deadline=None)
@given(st.sampled_from(["\n", "\r\n", "\r"]), st.sampled_from(["chat", "responses"]), st.data())
def test_no_event_waits_and_no_other_byte_changes_however_a_stream_is_cut(
    line_end: str, name: str, data: st.DataObject
) -> None:
    api, events, expected = STREAMS[name]
    assert expected is not None
    whole, with_field = (b"".join(stream).replace(b"\n", line_end.encode()) for stream in (events, expected))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    pieces = [whole[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    done = exchange(api, *messages(pieces, STREAM))
    assert done.body == with_field
    given_so_far = [b"".join(pieces[:count]) for count in range(len(pieces) + 1)]
    assert [events_in(received) for received in done.after] == [events_in(given) for given in given_so_far]


def test_events_that_share_a_piece_are_handed_on_together_at_once() -> None:
    done = exchange("chat", *messages([b"".join(CHAT[:2]), b"".join(CHAT[2:])], STREAM))
    assert [message["body"] for message in done.got[1:]] == [b"".join(CHAT[:2]), b"".join(CHAT_WITH_FIELD[2:])]


PLAIN = dumped(id="c", object="chat.completion", choices=[{"message": "né"}], usage={"prompt_tokens": 100, "n": -0.5})
PLAIN_WITH_FIELD = PLAIN.replace(b"-0.5", b'-0.5,"original_prompt_tokens":130')
RESPONSE = dumped(object="response", status="incomplete", usage={"input_tokens": 100})
RESPONSE_WITH_FIELD = RESPONSE.replace(b"100", b'100,"original_prompt_tokens":130')


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize(
    ("api", "body", "expected"), [("chat", PLAIN, PLAIN_WITH_FIELD), ("responses", RESPONSE, RESPONSE_WITH_FIELD)]
)
def test_a_json_answer_has_the_field_and_says_its_length(api: str, body: bytes, expected: bytes, pieces: int) -> None:
    cut = [body[place : place + -(-len(body) // pieces)] for place in range(0, len(body), -(-len(body) // pieces))]
    length = (b"Content-Length", str(len(body)).encode())
    done = exchange(api, *messages(cut, JSON, length, (b"x-other", b"1")))
    headers = dict(done.got[0]["headers"])
    assert done.body == expected
    assert headers[b"Content-Length"] == str(len(expected)).encode()
    assert (headers[b"content-type"], headers[b"x-other"]) == (JSON[1], b"1")
    assert b"x-lam-report" in headers


UNTOUCHED = {
    "error": ("chat", messages([PLAIN], JSON, status=400)),
    "error that says 200": ("chat", messages([dumped(error={"message": "no"})], JSON)),
    "compressed stream": ("chat", messages([b"\x1f\x8b", *CHAT], STREAM, (b"content-encoding", b"gzip"))),
    "compressed JSON": ("chat", messages([PLAIN], JSON, (b"Content-Encoding", b"br"))),
    "Latin-1": ("chat", messages([PLAIN.decode().encode("latin-1")], JSON)),
    "UTF-16": ("chat", messages([PLAIN.decode().encode("utf-16")], JSON)),
    "neither JSON nor events": ("chat", messages([PLAIN], (b"content-type", b"text/plain"))),
    "no content type": ("chat", messages([PLAIN])),
    "list": ("chat", messages([b"[1]"], JSON)),
    "Messages": ("messages", messages([dumped(usage={"input_tokens": 1})], JSON)),
    "tokenize": ("tokenize", messages([dumped(usage={"input_tokens": 1})], JSON)),
    "file": (
        "chat",
        [*messages([], JSON), {"type": "http.response.pathsend", "path": "/a"}],
    ),
    "trailers": ("chat", [*messages([b"{}"], JSON), {"type": "http.response.trailers", "headers": []}]),
    "trailers of a stream": ("chat", [*messages([DONE], STREAM), {"type": "http.response.trailers", "headers": []}]),
    "file after a piece": (
        "chat",
        [*messages([PLAIN, b""], JSON)[:2], {"type": "http.response.pathsend", "path": "/a"}, *messages([PLAIN])[1:]],
    ),
}


@pytest.mark.parametrize("name", UNTOUCHED)
def test_what_can_hold_no_such_usage_passes_as_it_came(name: str) -> None:
    api, given = UNTOUCHED[name]
    got = exchange(api, *given).got
    assert got[0]["headers"][:-1] == given[0]["headers"]
    assert got[1:] == given[1:]


@pytest.mark.parametrize("how", [{"wish": False}, {"settled": ()}])
@pytest.mark.parametrize("pieces", [(CHAT, STREAM), ([PLAIN[:9], PLAIN[9:]], JSON)])
def test_without_the_wish_or_a_compaction_the_very_messages_pass_one_by_one(
    pieces: tuple[list[bytes], tuple[bytes, bytes]], how: dict[str, Any]
) -> None:
    done = exchange("chat", *messages(pieces[0], pieces[1]), **how)
    assert all(got is given for got, given in zip(done.got[1:], done.given[1:], strict=True))
    assert [len(after) for after in done.after] == [
        sum(map(len, pieces[0][:count])) for count in range(len(pieces[0]) + 1)
    ]
