"""Plain questions over one connection, which is to say to one process of a server."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx

from lam_vllm.records import RecordStore
from lam_vllm.serving.settings import variable
from lam_vllm.serving.store_settings import server_key
from lam_vllm.serving.work import removed_text
from lam_vllm.stores.memory import MemoryRows
from lam_vllm.types import Decision, Message
from tests.server.conftest import SERVED_NAME
from tests.server.fleet import FLEET_ENVIRONMENT, STORE_BYTES
from tests.server.talks import body


def samples(client: httpx.Client) -> dict[str, float]:
    """Every sample of /metrics, by name and labels."""
    lines = [line for line in client.get("/metrics").text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def render(client: httpx.Client, messages: list[Message], **fields: Any) -> list[int]:
    """The prompt's token ids, by this client's process."""
    asked = {"model": SERVED_NAME, **body("chat", messages), **fields}
    ids: list[int] = client.post("/v1/chat/completions/render", json=asked).raise_for_status().json()["token_ids"]
    return ids


def fleet_key() -> bytes:
    """What the fleet makes of the key it is given."""
    return server_key(FLEET_ENVIRONMENT, variable, variable, required=True)


def removed_record(client: httpx.Client, messages: list[Message], salt: str) -> str:
    """The id under which a request with these messages keeps what it removes first; asked without keeping anything."""
    asked = {"messages": messages, "lam": {"store": False}}
    decisions = client.post("/v1/lam/compact", json=asked).raise_for_status().json()["decisions"]
    assert not any(each["record"] for each in decisions)
    text = next(filter(None, (removed_text(messages, Decision(**each["decision"])) for each in decisions)))
    return RecordStore(MemoryRows(STORE_BYTES, 60), fleet_key()).put(salt, text)


def have_text_kept(client: httpx.Client, lines: int, salt: str) -> None:
    """Have a new text of so many lines, 45 bytes each, removed and kept: a dry run over a result that comes twice."""
    text = "\n".join(f"{uuid4().hex} line {number:06}" for number in range(lines))
    result = {"role": "tool", "content": text}
    messages = [{"role": "user", "content": "go"}, result, {"role": "assistant", "content": "again"}, result]
    asked = {"messages": messages, "lam": {"profile": "exact"}, "cache_salt": salt}
    client.post("/v1/lam/compact", json=asked).raise_for_status()


def look_up(client: httpx.Client, identity: str, salt: str) -> httpx.Response:
    """The answer to a look-up of removed text."""
    return client.get(f"/v1/lam/records/{identity}", headers={"x-lam-cache-salt": salt})
