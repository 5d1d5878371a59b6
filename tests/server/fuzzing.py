"""Request bodies as no client would send them: recorded conversations, mutated where their structure is.

The same for the same seed. A number names one request of a seed, whatever else is drawn.
"""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lam_vllm.types import Message
from tests.server.conftest import SERVED_NAME
from tests.server.fuzz_mutations import MUTATIONS, Draft
from tests.server.fuzz_wire import WIRE_MUTATIONS, Wire, serialized
from tests.server.talks import TOOLS, body, recorded

ENGINE_CHARACTERS = 300
"""Longest message of a request that is generated: a CPU prefills all of them in a few milliseconds."""
_RENDERED = {
    "chat": "/v1/chat/completions/render",
    "responses": "/v1/responses/render",
    "messages": "/v1/messages/render",
    "tokenize": "/tokenize",
    "compact": "/v1/lam/compact",
    "warm": "/v1/lam/warm",
}
_GENERATED = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
_LIMITS = {"chat": "max_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}
_LEFT_TO_ENGINE = {
    "chat": ("messages", "tools", "lam", "vllm_xargs", "cache_salt", "stream"),
    "responses": ("input", "lam", "vllm_xargs", "cache_salt", "stream", "store"),
    "messages": ("messages", "system", "vllm_xargs", "cache_salt", "stream"),
}
"""Fields that reach the engine as the mutation left them. What samples is vLLM's, and would only make it generate."""
_ASKED: tuple[dict[str, bytes], ...] = (
    {},
    {},
    {"x-lam": b'{"profile": "guarded"}'},
    {"x-lam": b'{"observations": "tool+user"}'},
)
"""What the header asks for before it is mutated: the worker process is to get its share."""


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """One request. `kind` says how it was made, `name` which one of its seed it is."""

    name: str
    kind: str
    method: str
    path: str
    headers: Mapping[str, bytes]
    content: bytes

    @property
    def is_ours(self) -> bool:
        """Whether the route is the plugin's own, which vLLM without it does not have."""
        return self.path.startswith("/v1/lam")

    @property
    def is_generated(self) -> bool:
        """Whether the engine answers it, if it comes so far."""
        return self.path in _GENERATED.values()


def mutated(seed: int, count: int, generated: int) -> Iterator[Fuzzed]:
    """`count` requests, of which at most `generated` reach the engine; the others are rendered, or the plugin's own."""
    every = max(1, count // generated) if generated else 0
    for number in range(count):
        to_engine = every > 0 and number % every == 0 and number // every < generated
        yield _mutated(f"{seed}/{number}", to_engine)


def _mutated(name: str, to_engine: bool) -> Fuzzed:
    draw = random.Random(name)
    api = draw.choice(list(_GENERATED if to_engine else _RENDERED))
    draft = Draft(draw, _base(api, draw, to_engine), dict(draw.choice(_ASKED)))
    kinds = draw.sample(list(MUTATIONS), draw.choice((1, 1, 2, 3)))
    for kind in kinds:
        MUTATIONS[kind](draft)
    if to_engine:
        _bound(draft, api)
    wire = Wire(serialized(draft), {"content-type": b"application/json", **draft.headers})
    if draw.random() < 0.1:
        kinds.append(draw.choice(list(WIRE_MUTATIONS)))
        WIRE_MUTATIONS[kinds[-1]](draw, wire)
    path = _GENERATED[api] if to_engine else _RENDERED[api]
    return Fuzzed(name, "+".join(sorted(kinds)), "POST", path, wire.headers, wire.content)


def _base(api: str, draw: random.Random, to_engine: bool) -> dict[str, Any]:
    """A right request: a stretch of the recorded run in which tool output comes again."""
    messages = copy.deepcopy(_stretch()[: draw.choice((4, 8, 12, 13))])
    if to_engine:
        messages = [{**message, "content": message["content"][:ENGINE_CHARACTERS]} for message in messages]
    if api == "warm":
        return {"messages": messages, "wait": True}
    if api == "compact":
        return {"messages": messages}
    fields = {"messages": messages} if api == "tokenize" else body(api, messages)
    return {
        "model": SERVED_NAME,
        **fields,
        **({"tools": copy.deepcopy(TOOLS)} if api == "chat" and draw.random() < 0.2 else {}),
    }


@functools.cache
def _stretch() -> list[Message]:
    return recorded()


def _bound(draft: Draft, api: str) -> None:
    """Take back what would make the engine work for long."""
    if isinstance(draft.tree, dict):
        kept = {key: value for key, value in draft.tree.items() if key in _LEFT_TO_ENGINE[api]}
        draft.tree = {"model": SERVED_NAME, **kept, _LIMITS[api]: 1}
