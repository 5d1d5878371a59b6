"""Rows in the memory of the process: nobody refreshes them, and nothing is kept for longer than it may be."""

from __future__ import annotations

from lam_vllm.stores.base import ROW_BYTES
from lam_vllm.stores.memory import MemoryRows
from tests.stores.conftest import RETENTION, Clock, get, row


def test_what_is_too_old_goes_with_the_next_row_that_is_put_though_it_was_read_meanwhile() -> None:
    clock = Clock()
    rows = MemoryRows(1_000_000, RETENTION, clock)
    rows.put_many([row("a"), row("b")])
    clock.now += RETENTION - 1
    rows.put_many([row("b"), row("c")])
    assert get(rows, "a", "c", "b") == [b"a", b"c", b"b"]
    clock.now += 2
    rows.put_many([row("d")])
    assert rows.nbytes == 3 * (ROW_BYTES + 1)
    assert get(rows, "a", "b", "c", "d") == [None, b"b", b"c", b"d"]
    rows.check_integrity()


def test_old_rows_go_in_steps_that_hold_up_nobody() -> None:
    clock = Clock()
    rows = MemoryRows(1_000_000, RETENTION, clock)
    rows.put_many([row(f"{number}", b"") for number in range(2_500)])
    clock.now += RETENTION + 1
    for left in (1_501, 502, 3, 4):
        rows.put_many([row(f"new {left}", b"")])
        assert rows.nbytes == left * ROW_BYTES
        rows.check_integrity()
