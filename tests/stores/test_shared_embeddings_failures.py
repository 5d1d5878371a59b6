"""A shared store that is foul, dead or hangs: embeddings stay what they are, and nobody waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event

import numpy as np
import pytest

from lam_vllm.stores import Row, StoreError
from lam_vllm.stores.behind import RowsBehind
from lam_vllm.stores.memory import MemoryRows
from tests.core.fake_encoders import TwoPassBag, noisy_pass
from tests.stores.conftest import Errors, tries
from tests.stores.pools import WORDS, Blocked, all_of, block, pool_with


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
