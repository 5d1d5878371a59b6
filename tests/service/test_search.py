"""What a service keeps to be searched: over a kill, between two services, and for one tenant only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from lam_vllm.encoders.base import BatchEncoder
from tests.conftest import measured_before
from tests.redis_server import RedisServer
from tests.service.conftest import KEY, STOP_SECONDS, Running, Start, until
from tests.serving.searched import QUESTION, RESULT, conversation

Begin = Callable[[Path | str], Running]


@pytest.fixture
def begin(start: Start, encoder: BatchEncoder, tmp_path_factory: pytest.TempPathFactory) -> Begin:
    """Starts a service with the packaged encoder and this store, a file or a URL."""
    cache = measured_before(encoder, tmp_path_factory.mktemp("cache"))
    arguments = ("--lam-encoder=minilm", "--lam-threads=1")
    return lambda store: start(*arguments, f"--lam-store-url={store}", LAM_KEY=KEY, XDG_CACHE_HOME=str(cache))


def compacted(client: httpx.Client, salt: str) -> str:
    """The digest of the conversation, which was compacted under this salt."""
    body = {"messages": conversation(), "cache_salt": salt}
    report = client.post("/v1/lam/compact", json=body).raise_for_status().json()["report"]
    return str(report["prefix_digest"])


def search(client: httpx.Client, digest: str, salt: str) -> httpx.Response:
    body = {"query": QUESTION, "prefix_digest": digest, "cache_salt": salt}
    return client.post("/v1/lam/search", json=body)


def index_bytes(client: httpx.Client) -> int:
    held: int = client.get("/v1/lam/status").raise_for_status().json()["index"]["bytes"]
    return held


def test_what_was_indexed_outlives_a_killed_server_and_belongs_to_its_tenant(begin: Begin, tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite"
    first = begin(store)
    with first.client() as client:
        digest = compacted(client, "one")
        until(lambda: index_bytes(client) > 0, "the index is in the file")
        before = search(client, digest, "one").raise_for_status().json()
    first.process.kill()
    first.process.wait(STOP_SECONDS)

    second = begin(store)
    with second.client() as client:
        after = search(client, digest, "one").raise_for_status().json()
        assert after == before
        assert after["hits"][0]["result"] == RESULT
        assert search(client, digest, "two").status_code == search(client, digest, "").status_code == 404
        deleted = client.delete("/v1/lam/records", headers={"x-lam-cache-salt": "one"})
        assert deleted.status_code == 200
        assert search(client, digest, "one").status_code == 404
    assert second.stop() == 0
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("store.sqlite*")} == {0o600}


def test_while_the_store_is_away_messages_are_searched_and_no_digest_is_called_unknown(
    begin: Begin, redis_server: RedisServer
) -> None:
    service = begin(redis_server.url)
    with service.client() as client:
        digest = compacted(client, "one")
        until(lambda: index_bytes(client) > 0, "the index is in Redis")
        redis_server.kill()
        until(lambda: search(client, digest, "one").status_code == 503, "the store is missed")
        assert search(client, "unknown", "one").status_code == 503
        asked = {"query": QUESTION, "messages": conversation(), "cache_salt": "one"}
        hits = client.post("/v1/lam/search", json=asked).raise_for_status().json()["hits"]
        assert hits[0]["result"] == RESULT
        other = compacted(client, "two")
        until(lambda: service.metric("lam:store_errors_total", store="index") > 0, "what cannot be written is counted")
        redis_server.start()
        until(lambda: search(client, digest, "one").status_code == 200, "what was kept is found again")
        assert search(client, other, "two").status_code == 200
    assert service.stop() == 0
