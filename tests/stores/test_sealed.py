"""A row that was damaged, moved, or made without the key is not there, and is counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lam_vllm.stores.hashes import group_of, keyed_hash
from lam_vllm.stores.memory import MemoryRows
from lam_vllm.stores.sealed import SealedRows
from tests.stores.conftest import GROUPS, Errors, get, row

KEY = b"k" * 32


def sealed(key: bytes = KEY) -> tuple[SealedRows, MemoryRows, Errors]:
    below, errors = MemoryRows(1_000_000, 1_000.0), Errors()
    return SealedRows(below, key, errors), below, errors


@given(value=st.binary(max_size=100), place=st.integers(0), bit=st.integers(0, 7))
def test_a_value_comes_back_unless_a_bit_of_it_is_another(value: bytes, place: int, bit: int) -> None:
    rows, below, errors = sealed()
    rows.put_many([row("a", value)])
    assert get(rows, "a") == [value]
    (stored,) = get(below, "a")
    assert stored is not None
    damaged = bytearray(stored)
    damaged[place % len(damaged)] ^= 1 << bit
    below.put_many([row("a", bytes(damaged))])
    assert get(rows, "a") == [None]
    assert errors.told == [1]


@pytest.mark.parametrize("length", [0, 1, 16, 31, 32, 34])
def test_a_value_that_was_cut_off_is_not_there(length: int) -> None:
    rows, below, errors = sealed()
    rows.put_many([row("a", b"text")])
    (stored,) = get(below, "a")
    assert stored is not None
    below.put_many([row("a", stored[:length])])
    assert get(rows, "a") == [None]
    assert errors.total == 1


def other_key(rows: SealedRows, below: MemoryRows) -> None:
    SealedRows(below, b"x" * 32, Errors()).put_many([row("a", b"forged")])


def other_place(rows: SealedRows, below: MemoryRows) -> None:
    rows.put_many([row("b", b"of another tenant", GROUPS[1])])
    (stored,) = get(below, "b")
    assert stored is not None
    below.put_many([row("a", stored)])


def plain(rows: SealedRows, below: MemoryRows) -> None:
    below.put_many([row("a", b"text that nobody sealed, as long as you like")])


@pytest.mark.parametrize("forge", [other_key, other_place, plain])
def test_a_row_of_somebody_else_is_not_there(forge: Callable[[SealedRows, MemoryRows], None]) -> None:
    rows, below, errors = sealed()
    forge(rows, below)
    assert get(rows, "a") == [None]
    assert errors.total == 1


def test_the_rest_is_that_of_the_rows_below() -> None:
    rows, below, errors = sealed()
    rows.put_many([row("a"), row("b", group=GROUPS[1])])
    assert rows.nbytes == below.nbytes > 0
    rows.refresh()
    rows.check_integrity()
    assert rows.delete_group(GROUPS[0]) == 1
    assert get(rows, "a", "b", "nobody") == [None, b"b", None]
    assert errors.total == 0
    rows.close()


@given(st.lists(st.text() | st.binary(), max_size=3), st.lists(st.text() | st.binary(), max_size=3))
def test_hashes_tell_lists_of_parts_apart_and_keys(one: list[str | bytes], other: list[str | bytes]) -> None:
    plain_parts = [[part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part for part in parts]
                   for parts in (one, other)]  # fmt: skip
    assert (keyed_hash(KEY, *one) == keyed_hash(KEY, *other)) == (plain_parts[0] == plain_parts[1])
    assert keyed_hash(KEY, *one) != keyed_hash(b"x" * 32, *one)


def test_groups_are_hashes_of_the_salt() -> None:
    assert group_of(KEY, "tenant") == group_of(KEY, "tenant")
    assert len({group_of(KEY, salt) for salt in ("", "tenant", "tenant ", "\ud800")} | {group_of(b"x", "tenant")}) == 5
    assert b"tenant" not in group_of(KEY, "tenant")
