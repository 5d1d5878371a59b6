"""Bodies that no client of good will sends: refused with a 4xx that can be read, or answered; never a 5xx."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from fastapi import HTTPException
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lam_vllm.serving.routes import bounded
from lam_vllm.serving.routes.asked import MAX_MESSAGES
from tests.serving.fakes import TEXT, Server, agent_messages, with_client

REPEATED = agent_messages(TEXT, TEXT)
DEEP = bounded.MAX_DEPTH + 1
JSON = {"content-type": "application/json"}

REFUSED: dict[str, tuple[bytes, int, str]] = {
    "nothing": (b"", 422, "body: Field required"),
    "no json": (b"{", 400, "the body is not JSON"),
    "no text": (b"\xff\xfe\xff", 400, "the body is not JSON"),
    "deep": (b'{"messages": ' + b"[" * DEEP + b"]" * DEEP + b"}", 400, "nested more than 100 deep"),
    "deeper than Python": (b"[" * 200_000, 400, "the body is not JSON"),
    "not a number": (b'{"messages": [{"content": NaN}]}', 400, "NaN is no JSON number"),
    "out of range": (b'{"messages": [{"content": 1e999}]}', 400, "1e999 is out of range"),
    "a huge integer": (b'{"messages": [{"content": ' + b"9" * 5_000 + b"}]}", 400, "the body is not JSON"),
    "no object": (b"[]", 422, "body"),
    "no list": (b'{"messages": 1}', 422, "body.messages: Input should be a valid list"),
    "no messages": (b'{"messages": [1, 2, 3]}', 422, "message 0 is not an object"),
    "many wrong messages": (b'{"messages": [' + b"1," * 60_000 + b"1]}", 422, "message 0 is not an object"),
    "too many messages": (b'{"messages": [' + b"{}," * MAX_MESSAGES + b"{}]}", 422, "at most 65536 items"),
    "too many fields": (json.dumps({f"f{n}": n for n in range(100)}).encode(), 400, "more than 32 fields"),
    "a field of half a character": (b'{"\\ud800": 1}', 422, "unable to parse raw data as a unicode string"),
    "an option of half a character": (b'{"messages": [], "lam": {"\\ud800": 1}}', 400, "lam."),
    "a huge option": (b'{"messages": [], "lam": {"profile": "' + b"x" * 1_000_000 + b'"}}', 400, "lam.profile"),
}


@pytest.mark.parametrize("path", ["/compact", "/warm", "/search", "/enabled"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_body_is_refused_in_words_and_briefly(name: str, path: str) -> None:
    body, code, words = REFUSED[name]

    async def use(client: httpx.AsyncClient) -> None:
        answer = await client.post(path, content=body, headers=JSON)
        assert 400 <= answer.status_code < 500
        assert answer.content.isascii()
        assert len(answer.json()["detail"]) <= bounded.MAX_PROBLEM_CHARACTERS
        if path == "/compact":
            assert (answer.status_code, words in answer.json()["detail"]) == (code, True), answer.text[:300]

    with_client(Server(), use)


def test_a_body_that_is_too_long_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "MAX_BODY_BYTES", 1_000)
    pieces = 0

    async def long() -> Any:
        nonlocal pieces
        while pieces < 1_000:
            pieces += 1
            yield b" " * 100

    async def use(client: httpx.AsyncClient) -> None:
        answer = await client.post("/compact", content=long(), headers=JSON)
        assert (answer.status_code, answer.json()) == (413, {"detail": "the body is longer than 1000 bytes"})

    with_client(Server(), use)
    assert pieces <= 12


@pytest.mark.parametrize(("open_one", "close_one"), [("[", "]"), ('{"a":', "}")])
def test_a_body_may_be_nested_100_deep_and_no_deeper(open_one: str, close_one: str) -> None:
    def nested(depth: int) -> bytes:
        return (open_one * (depth - 1) + "[]" + close_one * (depth - 1)).encode()

    assert bounded.read_json(nested(100)) is not None
    with pytest.raises(HTTPException, match="nested more than 100 deep"):
        bounded.read_json(nested(101))


@pytest.mark.parametrize("path", ["/compact", "/warm", "/search", "/enabled"])
def test_a_body_may_have_16_megabytes_and_no_more(path: str) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        body = json.dumps({"messages": [], "enabled": True}).encode().ljust(16_000_000)
        assert (await client.post(path, content=body, headers=JSON)).status_code != 413
        assert (await client.post(path, content=body + b" ", headers=JSON)).status_code == 413

    with_client(Server(), use)


def test_a_body_that_says_to_be_something_else_is_refused() -> None:
    async def use(client: httpx.AsyncClient) -> None:
        body = json.dumps({"messages": REPEATED}).encode()
        answer = await client.post("/compact", content=body, headers={"content-type": "text/plain"})
        assert answer.status_code == 422

    with_client(Server(), use)


TEXTS = st.text(st.characters(exclude_categories=()), max_size=30) | st.sampled_from(
    ["tool", "assistant", "user", "function", TEXT, "text", ""]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(["role", "content", "name", "tool_call_id", "tool_calls", "type", "text", "function", "id"])
ROLES = st.sampled_from(["tool", "assistant", "user", "function"])
PARTS = st.fixed_dictionaries({"type": st.just("text") | VALUES, "text": st.just(TEXT) | VALUES}) | VALUES
CALLS = st.lists(st.fixed_dictionaries({"id": VALUES, "function": st.dictionaries(NAMES, VALUES)}) | VALUES, max_size=3)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": ROLES | VALUES, "content": st.just(TEXT) | st.lists(PARTS, max_size=3) | VALUES},
        optional={"name": VALUES, "tool_call_id": VALUES, "tool_calls": CALLS | VALUES},
    )
    | st.dictionaries(NAMES | TEXTS, VALUES, max_size=5),
    max_size=6,
)
BODIES = st.fixed_dictionaries(
    {"messages": MESSAGES | VALUES},
    optional={"lam": VALUES, "cache_salt": VALUES, "model": VALUES, "text": VALUES, "wait": VALUES, "bogus": VALUES},
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(body=BODIES, standalone=st.booleans(), path=st.sampled_from(["/compact", "/warm"]))
def test_no_body_makes_the_server_fail(body: Any, standalone: bool, path: str) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        answer = await client.post(path, content=json.dumps(body).encode(), headers=JSON)
        assert answer.status_code in (200, 202, 400, 422), answer.text[:500]
        if answer.status_code == 200 and path == "/compact":
            result = answer.json()
            assert result["outcome"] in (None, "changed", "unchanged", "observed", "passed_through")
            assert len(result["messages"]) == len(body["messages"])

    with_client(Server(standalone=standalone), use)


@settings(max_examples=100, deadline=None)
@given(
    header=st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=200)
    | VALUES.map(json.dumps)
    | st.integers(1, 1_200).map(lambda depth: "[" * depth + "]" * depth)
)
def test_no_header_makes_the_server_fail(header: str) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        value = header.encode("latin-1", "replace")
        headers = [(b"x-lam", value), (b"x-lam-cache-salt", value)]
        answer = await client.post("/compact", json={"messages": REPEATED}, headers=headers)
        assert answer.status_code in (200, 400), answer.text[:500]
        assert (await client.get("/records/none", headers=headers)).status_code == 404

    with_client(Server(standalone=True), use)


def test_the_openapi_names_every_refusal() -> None:
    paths = Server().app().openapi()["paths"]
    answers = {
        f"{method} {path.removeprefix('/v1/lam')}": sorted(operation["responses"])
        for path, operations in paths.items()
        for method, operation in operations.items()
    }
    assert answers == {
        "get /status": ["200", "401"],
        "post /compact": ["200", "400", "401", "413", "422", "500", "503"],
        "post /search": ["200", "400", "401", "404", "413", "422", "500", "503"],
        "post /warm": ["200", "202", "400", "401", "413", "422", "500", "503"],
        "get /records/{identity}": ["200", "401", "404", "410", "422", "503"],
        "delete /records": ["200", "401", "503"],
        "get /tool": ["200", "401"],
        "post /enabled": ["200", "400", "401", "413", "422", "503"],
    }
