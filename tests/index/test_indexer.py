"""The queue before the shelf: on nobody's time, the newest prefix of a conversation alone, and bounded."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Event, Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lam_vllm.errors import EncoderError
from lam_vllm.index import Completer, EncodedAs, Indexer, IndexShelf, PrefixWindows
from lam_vllm.index import indexer as indexer_module
from lam_vllm.index.indexer import WINDOW_BYTES
from lam_vllm.stores import Row, StoreError
from lam_vllm.stores.memory import MemoryRows
from lam_vllm.types import Embedding
from tests.core.chats import BagOfWords
from tests.index.prefixes import EPS, prefix_of, windows_of
from tests.index.prefixes import unit_rows as rows_of
from tests.index.test_gaps import CHAT, Failing, few_tokens
from tests.stores.conftest import Errors, tries

KEY = b"k" * 32
AN_HOUR = 3_600.0
DIMENSION = BagOfWords.dimension
ROW_BYTES = 4 * DIMENSION + WINDOW_BYTES


def unit_rows(count: int, seed: int = 0) -> Embedding:
    return rows_of(count, seed, DIMENSION)


class Gated(MemoryRows):
    """Rows whose writing waits until it may go on, and which fail while they are told to."""

    def __init__(self) -> None:
        super().__init__(10_000_000, 1_000.0)
        self.entered, self.open = Event(), Event()
        self.open.set()
        self.error: Exception | None = None
        self.puts = 0

    def put_many(self, rows: Sequence[Row]) -> None:
        self.puts += 1
        self.entered.set()
        assert self.open.wait(30)
        if self.error is not None:
            raise self.error
        super().put_many(rows)


class Queue:
    def __init__(self, indexer: Indexer, rows: Gated, errors: Errors) -> None:
        self.indexer, self.rows, self.errors = indexer, rows, errors

    def kept(self, *digests: str, salt: str = "salt") -> list[bool]:
        """Whether each is in the store, wherever it is found besides."""
        shelf = IndexShelf(self.rows, KEY, EncodedAs("", DIMENSION, EPS), self.errors)
        return [shelf.get(salt, digest) is not None for digest in digests]


@contextmanager
def queue_of(
    quiet: float = 0.0, longest: float = AN_HOUR, room: int = 10_000_000, encoder: BagOfWords | None = None
) -> Iterator[Queue]:
    rows, errors = Gated(), Errors()
    shelf, completer = IndexShelf(rows, KEY, EncodedAs("", DIMENSION, EPS), errors), Completer(encoder or BagOfWords())
    times = {"quiet_seconds": quiet, "longest_seconds": longest}
    indexer = Indexer(shelf, completer, errors, **times, max_waiting_bytes=room)
    try:
        yield Queue(indexer, rows, errors)
    finally:
        rows.open.set()
        indexer.close()
        indexer.close()


def grown(length: int, *earlier: str) -> PrefixWindows:
    return prefix_of(unit_rows(length), f"p{length}", *earlier)


def test_a_prefix_is_found_before_it_is_written_and_is_written_once_the_conversation_is_quiet() -> None:
    with queue_of(quiet=0.05) as queue:
        queue.rows.open.clear()
        queue.indexer.put("salt", grown(3))
        assert queue.indexer.get("salt", "p3") is not None
        assert queue.indexer.get("other", "p3") is None
        assert queue.rows.entered.wait(30)
        assert queue.indexer.get("salt", "p3") is not None, "while it is on its way too"
        queue.rows.open.set()
        assert queue.indexer.flush(30)
        assert queue.kept("p3") == [True]
        assert queue.indexer.get("salt", "p3") is not None


def test_the_newest_prefix_takes_the_place_of_those_that_it_extends_and_a_fork_has_its_own() -> None:
    with queue_of(quiet=AN_HOUR) as queue:
        queue.indexer.put("salt", grown(1))
        for length in range(2, 30):
            queue.indexer.put("salt", grown(length, f"p{length - 1}"))
        assert queue.indexer.waiting == 1
        fork = prefix_of(unit_rows(12, 1), "fork", "p11")
        queue.indexer.put("salt", fork)
        queue.indexer.put("salt", fork)
        queue.indexer.put("other", grown(5, "p29"))
        assert queue.indexer.waiting == 3
        queue.indexer.check_integrity()
        queue.indexer.close()
        assert queue.rows.puts == 3
        assert queue.kept("p28", "p29", "fork") == [False, True, True]
        assert queue.kept("p29", "p5", salt="other") == [False, True]
    assert queue.errors.total == 0


def test_a_prefix_that_was_written_goes_once_one_that_extends_it_is_written_through_whatever_steps() -> None:
    with queue_of(quiet=AN_HOUR) as queue:
        indexer = queue.indexer
        for length, extends in ((3, "p1"), (5, "p3"), (9, "p5"), (7, "p5")):
            indexer.put("salt", grown(length, extends))
            if length == 3:
                indexer._quiet = 0.0
                indexer.put("salt", grown(length, "p3"))
                assert indexer.flush(30)
                indexer._quiet = AN_HOUR
        assert queue.kept("p3") == [True]
        indexer.close()
        assert queue.kept("p3", "p5", "p9", "p7") == [False, False, True, True]


@given(steps=st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6), st.booleans()), max_size=30))
@settings(deadline=None, max_examples=30)
def test_whatever_extends_whatever_and_is_sent_again_what_waits_is_what_is_charged(
    steps: list[tuple[int, int, bool]],
) -> None:
    with queue_of(quiet=AN_HOUR, room=12 * ROW_BYTES) as queue:
        for length, extends, forget in steps:
            queue.indexer.put("salt", grown(length, *[f"p{each}" for each in range(extends)]))
            queue.indexer.check_integrity()
            if forget:
                queue.indexer.forget("salt")
                assert queue.indexer.waiting == 0
        queue.indexer.close()
        queue.indexer.check_integrity()


def test_a_conversation_that_is_never_quiet_is_written_all_the_same() -> None:
    with queue_of(quiet=AN_HOUR, longest=0.1) as queue:
        length = 1
        for _ in tries():
            queue.indexer.put("salt", grown(length + 1, f"p{length}"))
            length += 1
            if queue.rows.puts:
                break


def test_what_is_too_much_is_lost_the_oldest_first_and_counted() -> None:
    with queue_of(quiet=AN_HOUR, room=10 * ROW_BYTES) as queue:
        for place in range(5):
            queue.indexer.put(f"{place}", grown(4))
        assert (queue.indexer.waiting, queue.errors.total) == (2, 3)
        queue.indexer.put("large", grown(11))
        assert (queue.indexer.waiting, queue.errors.total) == (2, 4)
        queue.indexer.check_integrity()
        queue.indexer.close()
        assert [queue.kept("p4", salt=f"{place}") for place in range(5)] == [[False]] * 3 + [[True]] * 2
        queue.indexer.put("late", grown(1))
        assert queue.errors.total == 5


def test_closing_waits_no_longer_than_it_may_and_counts_what_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexer_module, "CLOSE_SECONDS", 0.05)
    with queue_of(quiet=AN_HOUR) as queue:
        queue.rows.open.clear()
        for salt in ("a", "b", "c"):
            queue.indexer.put(salt, grown(2))
        queue.indexer.close()
        assert queue.errors.total == 3
        assert queue.indexer.waiting == 0


def test_gaps_are_embedded_before_a_prefix_is_written_and_for_whoever_searches_meanwhile() -> None:
    prefix = windows_of(few_tokens("guarded"), CHAT)
    with queue_of(quiet=AN_HOUR) as queue:
        queue.indexer.put("salt", prefix)
        waits = queue.indexer.get("salt", prefix.digest)
        queue.indexer._quiet = 0.0
        queue.indexer.put("salt", prefix)
        assert queue.indexer.flush(30)
        written = queue.indexer.get("salt", prefix.digest)
    assert waits is not None
    assert written is not None
    assert (written.windows, written.uncovered) == (waits.windows, 0)
    assert len(written.windows) > 2


def test_an_encoder_that_fails_costs_what_is_in_the_gaps_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    prefix = windows_of(few_tokens("guarded"), CHAT)
    encoder = Failing(EncoderError("it is gone"))
    with queue_of(encoder=encoder) as queue, caplog.at_level(logging.CRITICAL, "lam_vllm.index.indexer"):
        queue.indexer.put("salt", replace(prefix, windows=grown(2).windows, rows=grown(2).rows))
        assert queue.indexer.flush(30)
        found = queue.indexer.get("salt", prefix.digest)
    assert found is not None
    assert (len(found.windows), found.uncovered) == (2, sum(gap.end - gap.start for gap in prefix.gaps))
    assert queue.errors.total == 1


def test_what_is_forgotten_while_its_gaps_are_embedded_is_not_written() -> None:
    prefix, encoder = windows_of(few_tokens("guarded"), CHAT), Failing()
    with queue_of(encoder=encoder) as queue:
        queue.indexer.put("mine", prefix)
        assert encoder.entered.wait(30)
        queue.indexer.forget("mine")  # does not wait for the encoder
        encoder.open.set()
        queue.indexer.close()
        assert queue.rows.nbytes == 0
    assert queue.errors.total == 0


def test_closing_does_not_wait_for_gaps_that_are_still_to_be_embedded() -> None:
    prefix, encoder = windows_of(few_tokens("guarded"), CHAT), Failing()
    encoder.open.set()
    with queue_of(quiet=AN_HOUR, encoder=encoder) as queue:
        queue.indexer.put("salt", prefix)
        queue.indexer.close()
        found = queue.indexer.get("salt", prefix.digest)
    assert found is not None
    assert (found.windows, found.uncovered) == ((), sum(gap.end - gap.start for gap in prefix.gaps))
    assert not encoder.entered.is_set()


def test_a_prefix_without_a_window_leaves_nothing() -> None:
    with queue_of() as queue:
        queue.indexer.put("salt", grown(0))
        assert queue.indexer.waiting == 0
    assert queue.rows.puts == 0


@pytest.mark.parametrize("error", [StoreError("gone"), RuntimeError("a fault of the code")])
def test_what_cannot_be_written_is_counted_and_the_next_is_written(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    with queue_of() as queue, caplog.at_level(logging.CRITICAL, "lam_vllm.index.indexer"):
        queue.rows.error = error
        queue.indexer.put("salt", grown(2))
        assert queue.indexer.flush(30)
        assert queue.errors.total == 1
        queue.rows.error = None
        queue.indexer.put("salt", grown(3))
        assert queue.indexer.flush(30)
        assert queue.kept("p2", "p3") == [False, True]


def test_what_is_forgotten_is_neither_found_nor_written_afterwards_and_another_tenant_keeps_all() -> None:
    with queue_of(quiet=AN_HOUR) as queue:
        for salt in ("mine", "yours"):
            queue.indexer.put(salt, grown(2))
        queue.indexer.forget("mine")
        assert queue.indexer.get("mine", "p2") is None
        queue.indexer.close()
        assert queue.kept("p2", salt="mine") == [False]
        assert queue.kept("p2", salt="yours") == [True]


def test_what_is_on_its_way_to_the_store_when_it_is_forgotten_does_not_stay_there() -> None:
    with queue_of() as queue:
        queue.rows.open.clear()
        queue.indexer.put("mine", grown(2))
        assert queue.rows.entered.wait(30)
        deletion = Thread(target=queue.indexer.forget, args=("mine",))
        deletion.start()
        queue.rows.open.set()
        deletion.join(30)
        queue.indexer.close()
        assert queue.indexer.get("mine", "p2") is None
        assert queue.rows.nbytes == 0


def test_a_deletion_that_the_store_refuses_is_an_error_and_nothing_waits_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_group: bytes) -> int:
        raise StoreError("it cannot be written")

    with queue_of(quiet=AN_HOUR) as queue:
        queue.indexer.put("mine", grown(2))
        monkeypatch.setattr(queue.rows, "delete_group", refuse)
        with pytest.raises(StoreError):
            queue.indexer.forget("mine")
        assert queue.indexer.waiting == 0
