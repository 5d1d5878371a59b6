"""Embeddings of other processes: used where they are there in time, and never others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from lam_vllm.encoders.base import Pass
from lam_vllm.encoders.memo import EmbeddingMemo
from lam_vllm.encoders.pool import EncoderPool
from lam_vllm.encoders.two_pass import FastPass
from lam_vllm.stores import Row, StoreSettings, open_rows
from lam_vllm.stores.memory import MemoryRows
from lam_vllm.types import Embedding
from tests.conftest import ROOT
from tests.core.fake_encoders import TwoPassBag
from tests.redis_server import RedisServer
from tests.stores.conftest import Errors, tries
from tests.stores.pools import BLOCKER, FAST, KEY, WORDS, Blocked, all_of, block, pool_with


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store that processes can share."""
    if request.param == "sqlite":
        return str(tmp_path / "lam" / "store.sqlite")
    server: RedisServer = request.getfixturevalue("redis_server")
    with server.client() as client:
        client.flushall()
    return server.url


@contextmanager
def pool_on(
    url: str, bag: TwoPassBag, errors: Errors, key: bytes = KEY, fast: FastPass = FAST
) -> Iterator[EncoderPool]:
    """A pool with a memo of its own and the store that is shared; what it made is written when it is closed."""
    rows = open_rows(StoreSettings(url, 10_000_000, 1_000.0), "embeddings", key, errors)
    with pool_with(rows, bag, errors, key, fast) as pool:
        yield pool


def test_what_one_pool_encoded_another_does_not(url: str) -> None:
    errors, first, second = Errors(), TwoPassBag(), Blocked()
    with pool_on(url, first, errors) as pool:
        embeddings = pool.embeddings("tenant")
        made = all_of(embeddings), all_of(embeddings, "canonical")
        assert (embeddings.encoded.once, embeddings.encoded.again, embeddings.encoded.remembered) == (40, 40, 0)
    with pool_on(url, second, errors) as pool:
        block(pool, second)
        embeddings = pool.embeddings("tenant")
        embeddings.prepare(WORDS)
        assert (embeddings.encoded.once, embeddings.encoded.remembered) == (40, 0), "nobody knows better yet"
        assert (all_of(embeddings), all_of(embeddings, "canonical")) == made
        assert (embeddings.encoded.once, embeddings.encoded.again, embeddings.encoded.remembered) == (0, 0, 40)
        assert all_of(pool.embeddings("tenant")) == made[0], "kept in its memo from here on"
        for _ in tries():
            if pool.shared_bytes:
                break
    assert second.encoded == set()
    assert errors.total == 0


@pytest.mark.parametrize("what", ["salt", "key", "fingerprint", "way"])
def test_what_is_of_another_tenant_key_encoder_or_way_is_encoded(url: str, what: str) -> None:
    errors, first, second = Errors(), TwoPassBag(), TwoPassBag()
    with pool_on(url, first, errors) as pool:
        all_of(pool.embeddings("tenant"))
    if what == "fingerprint":
        second.fingerprint = "another bag of words"
    key = b"x" * 32 if what == "key" else KEY
    fast = FastPass(Pass("noisy otherwise", "noisier", 4), FAST.guard_band, {}, "made") if what == "way" else FAST
    with pool_on(url, second, errors, key, fast) as pool:
        all_of(pool.embeddings("other" if what == "salt" else "tenant"))
    assert set(second.fast) == set(WORDS)
    assert errors.total == 0


def test_an_embedding_from_the_store_reaches_who_waits_while_the_encoder_still_works_on_it() -> None:
    errors, bag = Errors(), Blocked()
    rows = MemoryRows(1_000_000, 1_000.0)
    asked, known = Event(), Event()

    class Late(MemoryRows):
        def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
            asked.set()
            assert known.wait(30)
            return rows.get_many(keys)

    expected = np.zeros(bag.dimension, np.float32)
    expected[3] = 1.0
    with pool_with(Late(1_000_000, 1_000.0), bag, errors) as pool:
        embeddings = pool.embeddings("")
        embeddings.prepare([BLOCKER])
        assert asked.wait(30)
        assert bag.entered.wait(30)
        answer = embeddings._futures["fast", BLOCKER]
        rows.put_many([Row(answer.key, answer.group, expected.tobytes())])
        known.set()
        assert embeddings.embed(BLOCKER).tobytes() == expected.tobytes()
        assert embeddings.encoded.once == 1, "its encoding had begun"
        bag.free.set()
        assert embeddings.embed("another text").shape == expected.shape, "what the encoder brings late does no harm"
        assert pool.embeddings("").embed(BLOCKER).tobytes() == expected.tobytes()


def test_audits_neither_use_nor_fill_the_store(url: str) -> None:
    errors, bag = Errors(), TwoPassBag()
    with pool_on(url, bag, errors) as pool:
        pool.encode("text")
    again = TwoPassBag()
    with pool_on(url, again, errors) as pool:
        pool.encode("text")
        assert pool.shared_bytes == 0
    assert again.canonical == {"text": 1}


KEYS = """
from lam_vllm.encoders.memo import EmbeddingMemo
kept = EmbeddingMemo(0, "print", 8, key=b"k" * 32, way="way")
print(kept._key("salt", "fast", "text").hex(), kept._key("salt", "canonical", "text").hex())
"""


def test_names_of_embeddings_are_the_same_in_every_process_of_a_key_and_in_no_other() -> None:
    kept = EmbeddingMemo(0, "print", 8, key=KEY, way="way")
    said = subprocess.run([sys.executable, "-c", KEYS], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert said.split() == [kept._key("salt", kind, "text").hex() for kind in ("fast", "canonical")]
    others = [
        EmbeddingMemo(0, "print", 8, key=KEY, way="other"),
        EmbeddingMemo(0, "print", 8, key=b"x" * 32, way="way"),
        EmbeddingMemo(0, "prints", 8, key=KEY, way="way"),
    ]
    assert len({kept._key("salt", "fast", "text"), *(other._key("salt", "fast", "text") for other in others)}) == 4
    assert others[0]._key("salt", "canonical", "text") == kept._key("salt", "canonical", "text")


def test_embeddings_are_written_as_little_endian_floats() -> None:
    rows, bag = MemoryRows(1_000_000, 1_000.0), TwoPassBag()
    with pool_with(rows, bag, Errors()) as pool:
        embeddings = pool.embeddings("")
        made: Embedding = embeddings.canonical("text")
    (value,) = rows.get_many([embeddings._futures["canonical", "text"].key])
    assert value is not None
    assert np.frombuffer(value, "<f4").tolist() == made.tolist()
