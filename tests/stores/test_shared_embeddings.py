"""Embeddings of other processes: used where they are there in time, never waited for, and never others."""

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
from lam_vllm.encoders.pool import EncoderPool, PooledEmbeddings
from lam_vllm.encoders.two_pass import FastPass
from lam_vllm.stores import Row, Rows, StoreError, StoreSettings, open_rows
from lam_vllm.stores.behind import RowsBehind
from lam_vllm.stores.memory import MemoryRows
from lam_vllm.types import Embedding
from tests.conftest import ROOT
from tests.core.fake_encoders import TwoPassBag, noisy_pass
from tests.redis_server import RedisServer
from tests.stores.conftest import Errors, tries

KEY = b"k" * 32
WORDS = [f"window number {number} of a result" for number in range(40)]
BLOCKER = "the text that keeps the encoder busy"
FAST = noisy_pass(0.01)


class Blocked(TwoPassBag):
    """An encoder that is busy with one text until it is let go."""

    def __init__(self) -> None:
        self.entered, self.free = Event(), Event()
        super().__init__(before=self._block)

    def _block(self, texts: Sequence[str]) -> None:
        if BLOCKER in texts:
            self.entered.set()
            assert self.free.wait(30)

    @property
    def encoded(self) -> set[str]:
        return (set(self.fast) | set(self.canonical)) - {BLOCKER}


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


@contextmanager
def pool_with(
    rows: Rows | None, bag: TwoPassBag, errors: Errors, key: bytes = KEY, fast: FastPass = FAST
) -> Iterator[EncoderPool]:
    pool = EncoderPool(bag, fast, key=key, rows=rows, on_error=errors)
    try:
        yield pool
    finally:
        if isinstance(bag, Blocked):
            bag.free.set()
        pool.close()


def block(pool: EncoderPool, bag: Blocked) -> None:
    """Have the encoder busy, so that what is asked for next waits in its queue."""
    pool.embeddings("").prepare([BLOCKER])
    assert bag.entered.wait(30)


def all_of(embeddings: PooledEmbeddings, kind: str = "embed") -> dict[str, bytes]:
    ask = embeddings.embed if kind == "embed" else embeddings.canonical
    return {text: ask(text).tobytes() for text in WORDS}


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


class Foul(MemoryRows):
    """Rows that answer everything with the same bytes."""

    def __init__(self, value: bytes) -> None:
        super().__init__(1_000_000, 1_000.0)
        self.value = value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.value for _ in keys]


def vector(*numbers: float) -> bytes:
    return np.array([*numbers, *[0.0] * (64 - len(numbers))], "<f4").tobytes()


NO_EMBEDDINGS = [b"", b"text", vector(1.0)[:-4], vector(1.0) + b"1234", vector(), vector(2.0), vector(float("nan")),
                 vector(float("inf")), vector(1.0, 0.1)]  # fmt: skip


@pytest.mark.parametrize("value", NO_EMBEDDINGS, ids=range(len(NO_EMBEDDINGS)))
def test_what_is_no_unit_vector_of_the_dimension_is_counted_and_encoded(value: bytes) -> None:
    errors, bag = Errors(), TwoPassBag()
    with pool_with(Foul(value), bag, errors) as pool:
        assert pool.embeddings("").embed("text").tobytes() == bag.noisy("text", "text").tobytes()
        for _ in tries():
            if errors.total or "text" in bag.fast:
                break
    assert set(bag.fast) == {"text"}


def test_bytes_that_are_no_embedding_are_counted_and_never_used() -> None:
    errors, bag = Errors(), Blocked()
    with pool_with(Foul(vector(2.0)), bag, errors) as pool:
        block(pool, bag)
        embeddings = pool.embeddings("")
        embeddings.prepare(WORDS)
        for _ in tries():
            if errors.total >= len(WORDS):
                break
        bag.free.set()
        all_of(embeddings)
    assert bag.encoded == set(WORDS)
    assert errors.total == len(WORDS) + 1


class Dead(MemoryRows):
    """Rows that fail, or hang until they are let go."""

    def __init__(self, *, hangs: bool) -> None:
        super().__init__(1_000_000, 1_000.0)
        self.free = Event()
        if not hangs:
            self.free.set()

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        assert self.free.wait(30)
        raise StoreError("gone")

    def put_many(self, rows: Sequence[Row]) -> None:
        assert self.free.wait(30)
        raise StoreError("gone")


@pytest.mark.parametrize("hangs", [True, False])
def test_a_store_that_is_dead_or_hangs_changes_no_embedding_and_holds_nobody(hangs: bool) -> None:
    errors, bag, dead = Errors(), TwoPassBag(), Dead(hangs=hangs)
    with pool_with(RowsBehind(dead, errors, pause_seconds=0.01), bag, errors, fast=noisy_pass(0.01, 1)) as pool:
        embeddings = pool.embeddings("")
        embeddings.prepare(WORDS)
        assert all_of(embeddings) == {text: bag.noisy(text, text).tobytes() for text in WORDS}
        assert all_of(embeddings, "canonical") == {text: TwoPassBag().encode(text).tobytes() for text in WORDS}
        assert embeddings.encoded.once == len(WORDS)
        dead.free.set()
    assert errors.total >= 1


class Failing(MemoryRows):
    """Rows that cannot be read for a while."""

    def __init__(self) -> None:
        super().__init__(1_000_000, 1_000.0)
        self.failing, self.failed = False, Event()

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if self.failing:
            self.failed.set()
            raise StoreError("gone")
        return super().get_many(keys)


def test_a_store_that_failed_is_asked_again() -> None:
    rows, errors, bag = Failing(), Errors(), Blocked()
    with pool_with(rows, TwoPassBag(), errors) as pool:
        made = all_of(pool.embeddings("tenant"))
    rows.failing = True
    with pool_with(rows, bag, errors) as pool:
        block(pool, bag)
        assert rows.failed.wait(30)
        rows.failing = False
        assert all_of(pool.embeddings("tenant")) == made
    assert bag.encoded == set()


def test_audits_neither_use_nor_fill_the_store(url: str) -> None:
    errors, bag = Errors(), TwoPassBag()
    with pool_on(url, bag, errors) as pool:
        pool.encode("text")
    again = TwoPassBag()
    with pool_on(url, again, errors) as pool:
        pool.encode("text")
        assert pool.shared_bytes == 0
    assert again.canonical == {"text": 1}


def test_an_encoder_that_hangs_is_seen_by_the_age_of_its_batch() -> None:
    bag = Blocked()
    with pool_with(None, bag, Errors()) as pool:
        assert pool.batch_seconds == 0.0
        block(pool, bag)
        before = pool.batch_seconds
        for _ in tries():
            if pool.batch_seconds > before:
                break
        bag.free.set()
        for _ in tries():
            if pool.batch_seconds == 0.0:
                break


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
