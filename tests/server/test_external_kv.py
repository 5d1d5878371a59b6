"""What routers, and stores of KV blocks outside the engine, go by is the compacted prompt.

A router that knows what engines hold (llm-d's, for one) follows their events and looks an arriving prompt up by its
blocks; a store of KV blocks (LMCache, for one) is handed the engine's own token ids. Neither sees a message.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec
import pytest
import zmq

from tests.server.clients import Request, ask_chat, rendered_ids
from tests.server.conftest import BLOCK_TOKENS, SERVED_NAME, LiveServer
from tests.server.talks import common_prefix, recorded, turns
from tests.server.waiting import wait_for

REPLAY_MS = 60_000

Block: TypeAlias = tuple[int, ...]
Index: TypeAlias = dict[Any, dict[Block, Any]]
"""An engine's blocks and their hashes, by the hash of the block before; first ones by the salt of their request."""


def blocks(ids: list[int]) -> list[Block]:
    """The full blocks of a prompt."""
    return [tuple(ids[start : start + BLOCK_TOKENS]) for start in range(0, len(ids) - BLOCK_TOKENS + 1, BLOCK_TOKENS)]


def stored(server: LiveServer) -> Iterator[dict[str, Any]]:
    """The engine's events of stored blocks, all since its start, as an indexer that comes late gets them."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(f"ipc://{server.log.parent}/kv-replay")
        socket.send_multipart((b"", (0).to_bytes(8, "big")))
        while socket.poll(REPLAY_MS):
            *_, payload = socket.recv_multipart()
            if not payload:
                return
            yield from (event for event in msgspec.msgpack.decode(payload)[1] if event["type"] == "BlockStored")
    pytest.fail("the engine does not say what it stored")


def index(server: LiveServer) -> Index:
    """What a router knows of this server."""
    found: Index = defaultdict(dict)
    for event in stored(server):
        before = event["parent_block_hash"]
        if before is None:
            (before,) = (event.get("extra_keys") or [None])[0] or [None]
        for block, hashed in zip(blocks(event["token_ids"]), event["block_hashes"], strict=True):
            found[before][block] = hashed
            before = hashed
    return found


def held(server: LiveServer, salt: str, ids: list[int]) -> int:
    """How many leading blocks of this prompt a router finds at the server."""
    known, before = index(server), salt
    for place, block in enumerate(blocks(ids)):
        if block not in known[before]:
            return place
        before = known[before][block]
    return len(blocks(ids))


def test_a_router_that_renders_finds_at_the_engine_what_the_engine_then_takes_from_its_cache(
    hooked: LiveServer,
) -> None:
    salt, before = "router", list[int]()
    for turn in turns(recorded()):
        ids = rendered_ids(hooked, "chat", turn)
        expected = held(hooked, salt, ids)
        assert expected >= common_prefix(before, ids) // BLOCK_TOKENS
        usage = ask_chat(hooked, Request(turn, salt))
        assert (usage.prompt_tokens, usage.cached_tokens) == (len(ids), BLOCK_TOKENS * expected)
        wait_for(lambda: held(hooked, salt, ids) == len(blocks(ids)))  # noqa: B023 - called here and now
        before = ids
    assert expected > 1_000 // BLOCK_TOKENS


def test_a_router_that_tokenizes_the_messages_as_they_came_loses_the_cache_at_the_first_removal(
    hooked: LiveServer,
) -> None:
    salt, messages = "raw router", recorded()
    ids, raw = rendered_ids(hooked, "chat", messages), rendered_ids(hooked, "chat", messages, options=False)
    ask_chat(hooked, Request(messages, salt))
    wait_for(lambda: held(hooked, salt, ids) == len(blocks(ids)))
    assert held(hooked, salt, raw) == common_prefix(ids, raw) // BLOCK_TOKENS < len(blocks(raw))


def test_the_prompt_that_is_rendered_holds_the_compacted_messages_word_for_word(hooked: LiveServer) -> None:
    messages = recorded()
    with hooked.client() as client:
        compacted = client.post("/v1/lam/compact", json={"messages": messages}).raise_for_status().json()["messages"]
        asked = {"model": SERVED_NAME, "tokens": rendered_ids(hooked, "chat", messages)}
        prompt = client.post("/detokenize", json=asked).raise_for_status().json()["prompt"]
    assert compacted != messages
    place = 0
    for message in compacted:
        place = prompt.index(message["content"], place) + len(message["content"])
    assert not all(message["content"] in prompt for message in messages)
