"""The queue before a slow store: nobody waits for it, and whatever it loses is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

import pytest

from lam_vllm.stores import Row, StoreError, behind
from lam_vllm.stores.base import ROW_BYTES
from lam_vllm.stores.behind import RowsBehind
from lam_vllm.stores.memory import MemoryRows
from tests.stores.conftest import GROUPS, Errors, get, get_or_error, row, tries


class Slow(MemoryRows):
    """Rows whose writing waits until it may go on, and which fail while they are told to."""

    def __init__(self) -> None:
        super().__init__(1_000_000, 1_000.0)
        self.entered, self.open = Event(), Event()
        self.open.set()
        self.error: Exception | None = None
        self.batches: list[int] = []
        self.deleted: list[bytes] = []
        self.before_delete: Callable[[], object] = lambda: None
        self.seen: list[object] = []
        self.reads = 0
        self.closed = False

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.reads += 1
        self._fail()
        return super().get_many(keys)

    def put_many(self, rows: Sequence[Row]) -> None:
        self.entered.set()
        assert self.open.wait(30)
        self._fail()
        self.batches.append(len(rows))
        super().put_many(rows)

    def delete_many(self, keys: Sequence[bytes]) -> None:
        assert self.open.wait(30)
        self.seen.append(self.before_delete())
        self._fail()
        self.deleted += keys
        super().delete_many(keys)

    def delete_group(self, group: bytes) -> int:
        self._fail()
        return super().delete_group(group)

    def refresh(self) -> None:
        self._fail()
        super().refresh()

    def close(self) -> None:
        self.closed = True

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error


@contextmanager
def behind_of(slow: Slow, errors: Errors, pause: float = 0.01, room: int = 1_000_000) -> Iterator[RowsBehind]:
    rows = RowsBehind(slow, errors, pause_seconds=pause, max_pending_bytes=room)
    try:
        yield rows
    finally:
        slow.open.set()
        rows.close()


def test_a_row_is_readable_before_it_is_written_and_is_written_soon() -> None:
    slow, errors = Slow(), Errors()
    slow.open.clear()
    with behind_of(slow, errors) as rows:
        rows.put_many([row("a"), row("b")])
        assert slow.entered.wait(30)
        rows.put_many([row("c"), row("b", b"newer")])
        assert get(rows, "a", "b", "c") == [b"a", b"newer", b"c"]
        assert slow.reads == 0
        slow.open.set()
        assert rows.flush(30)
        assert rows.pending == 0
        assert get(slow, "a", "b", "c") == get(rows, "a", "b", "c") == [b"a", b"newer", b"c"]
        rows.check_integrity()
    assert errors.total == 0


def test_what_waits_is_written_in_few_steps_of_bounded_size() -> None:
    slow, errors = Slow(), Errors()
    slow.open.clear()
    with behind_of(slow, errors, room=50_000_000) as rows:
        rows.put_many([row("first")])
        assert slow.entered.wait(30)
        rows.put_many([row(f"row {number}") for number in range(2_500)])
        rows.put_many([row(f"large {number}", bytes(3_000_000)) for number in range(3)])
        slow.open.set()
        assert rows.flush(30)
    assert slow.batches == [1, 1_000, 1_000, 501, 1, 1]


def test_rows_for_which_there_is_no_room_are_lost_and_counted_one_by_one() -> None:
    slow, errors = Slow(), Errors()
    slow.open.clear()
    with behind_of(slow, errors, room=3 * (ROW_BYTES + 1)) as rows:
        rows.put_many([row(name) for name in "abcde"])
        rows.put_many([row("a"), row("f")])
        assert errors.told == [2, 1]
        assert get(rows, *"abcdef") == [b"a", b"b", b"c", None, None, None]
        slow.open.set()
        assert rows.flush(30)
        rows.put_many([row("d")])
        assert rows.flush(30)
        assert get(slow, *"abcd") == [b"a", b"b", b"c", b"d"]
        assert errors.total == 3


@pytest.mark.parametrize("error", [StoreError("gone"), OSError("no"), RuntimeError("a fault of the code")])
def test_rows_wait_for_a_store_that_fails_and_each_try_is_counted(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    slow, errors = Slow(), Errors()
    slow.error = error
    with behind_of(slow, errors) as rows:
        rows.put_many([row("a")])
        for _ in tries():
            if errors.total >= 3:
                break
        assert get(rows, "a") == [b"a"]
        slow.error = None
        assert rows.flush(30)
        assert get(slow, "a") == [b"a"]
        for _ in tries():
            if "works again" in caplog.text:
                break
    assert len([message for message in caplog.messages if "failed" in message]) == 1, "once for each time it is ill"


def test_while_a_store_rests_reads_fail_at_once_and_are_counted() -> None:
    slow, errors = Slow(), Errors()
    with behind_of(slow, errors, pause=1_000.0) as rows:
        rows.put_many([row("a")])
        assert rows.flush(30)
        slow.error = StoreError("gone")
        for asked in range(1, 5):
            with pytest.raises(StoreError):
                get(rows, "a", "b")
            assert errors.total == asked
        assert slow.reads == 1
        rows.put_many([row("c")])
        assert get(rows, "c") == [b"c"], "what waits is there all the same"
        assert get_or_error(rows, "a", "c") == "an error"


def test_a_store_that_was_left_alone_is_tried_again_without_anything_new_to_write() -> None:
    slow, errors = Slow(), Errors()
    with behind_of(slow, errors) as rows:
        rows.put_many([row("a")])
        assert rows.flush(30)
        slow.error = StoreError("gone")
        assert get_or_error(rows, "a") == "an error"
        slow.error = None
        for _ in tries():
            if get_or_error(rows, "a") == [b"a"]:
                break


def test_a_deleted_tenant_is_gone_from_what_waits_and_from_what_is_on_its_way() -> None:
    slow, errors = Slow(), Errors()
    with behind_of(slow, errors) as rows:
        rows.put_many([row("old")])
        assert rows.flush(30)
        slow.open.clear()
        slow.entered.clear()
        rows.put_many([row("on its way")])
        assert slow.entered.wait(30)
        rows.put_many([row("waits"), row("old"), row("other", group=GROUPS[1])])
        with ThreadPoolExecutor(1) as threads:
            deleting = threads.submit(rows.delete_group, GROUPS[0])
            slow.open.set()
            assert deleting.result(30) == 3
        assert rows.flush(30)
        assert get(rows, "old", "on its way", "waits", "other") == [None, None, None, b"other"]
        assert get(slow, "old", "on its way", "waits", "other") == [None, None, None, b"other"]


def test_a_deletion_that_fails_says_so_and_is_counted_and_what_waited_is_gone_all_the_same() -> None:
    slow, errors = Slow(), Errors()
    with behind_of(slow, errors, pause=1_000.0) as rows:
        slow.error = StoreError("gone")
        rows.put_many([row("a"), row("b", group=GROUPS[1])])
        for _ in tries():
            if errors.total:
                break
        before = errors.total
        with pytest.raises(StoreError):
            rows.delete_group(GROUPS[0])
        assert errors.total == before + 1
        assert get(rows, "b") == [b"b"]
        assert get_or_error(rows, "a") == "an error"


def test_closing_writes_what_waits_and_later_rows_are_lost_and_counted() -> None:
    slow, errors = Slow(), Errors()
    rows = RowsBehind(slow, errors)
    rows.put_many([row(f"row {number}") for number in range(1_500)])
    rows.close()
    rows.close()
    assert sum(slow.batches) == 1_500
    assert slow.closed
    rows.put_many([row("late")])
    assert errors.told == [1]


def test_closing_does_not_wait_for_a_store_that_hangs_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(behind, "CLOSE_SECONDS", 0.05)
    hanging, errors = Slow(), Errors()
    hanging.open.clear()
    rows = RowsBehind(hanging, errors)
    rows.put_many([row("a"), row("b")])
    rows.close()
    assert errors.total == 2
    hanging.open.set()
    failing, errors = Slow(), Errors()
    failing.error = StoreError("gone")
    rows = RowsBehind(failing, errors, pause_seconds=1_000.0)
    rows.put_many([row("a"), row("b")])
    rows.close()
    assert failing.closed
    assert errors.total >= 2


def test_a_row_is_gone_as_soon_as_it_was_deleted_whether_it_waits_or_was_written() -> None:
    slow, errors = Slow(), Errors()
    with behind_of(slow, errors) as rows:
        rows.put_many([row("written"), row("kept")])
        assert rows.flush(30)
        slow.open.clear()
        slow.entered.clear()
        rows.put_many([row("on its way")])
        assert slow.entered.wait(30)
        rows.put_many([row("waits")])
        rows.delete_many([row(name).key for name in ("written", "on its way", "waits", "nobody")])
        assert get(rows, "written", "on its way", "waits", "kept") == [None, None, None, b"kept"]
        rows.put_many([row("waits", b"again")])
        assert get(rows, "waits") == [b"again"]
        rows.check_integrity()
        slow.open.set()
        assert rows.flush(30)
        assert get(slow, "written", "on its way", "waits", "kept") == [None, None, b"again", b"kept"]
    assert errors.total == 0


def test_a_store_that_fails_deletes_what_it_was_told_to_when_it_works_again() -> None:
    slow, errors = Slow(), Errors()
    with behind_of(slow, errors) as rows:
        rows.put_many([row("a")])
        assert rows.flush(30)
        slow.error = StoreError("gone")
        rows.delete_many([row("a").key])
        for _ in tries():
            if errors.total:
                break
        assert get(rows, "a") == [None]
        slow.error = None
        assert rows.flush(30)
        assert get(slow, "a") == [None]


def test_deletions_that_are_too_many_are_lost_the_oldest_first_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(behind, "MAX_GONE", 3)
    slow, errors = Slow(), Errors()
    with behind_of(slow, errors) as rows:
        slow.open.clear()
        rows.put_many([row("first")])
        assert slow.entered.wait(30)
        rows.delete_many([row(name).key for name in "abcde"])
        assert errors.total == 2
        slow.open.set()
        assert rows.flush(30)
    assert slow.deleted == [row(name).key for name in "cde"]
    rows.delete_many([row("late").key])
    assert errors.total == 3


def test_rows_are_deleted_after_all_that_waits_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(behind, "BATCH_ROWS", 1)
    slow = Slow()
    with behind_of(slow, Errors()) as rows:
        rows.put_many([row("old")])
        assert rows.flush(30)
        slow.open.clear()
        slow.entered.clear()
        rows.put_many([row(name) for name in "abc"])
        assert slow.entered.wait(30)
        rows.delete_many([row("old").key])
        slow.before_delete = lambda: get(slow, *"abc")
        slow.open.set()
        assert rows.flush(30)
    assert slow.seen == [[b"a", b"b", b"c"]]
