"""Indexes in a store: what comes back, what is written once, and what is never handed to anybody else."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from lam_vllm.index import EncodedAs, IndexShelf, PrefixIndex, PrefixWindows, build_index
from lam_vllm.index.segments import SEGMENT_ROWS
from lam_vllm.stores import Row, StoreError, StoreSettings, open_rows
from lam_vllm.stores.hashes import group_of
from lam_vllm.stores.memory import MemoryRows
from tests.index.prefixes import DIMENSION, EPS, prefix_of, unit_rows
from tests.stores.conftest import Clock, Errors

KEY = b"k" * 32
ENCODED = EncodedAs("the encoder", DIMENSION, EPS)


class Seen(MemoryRows):
    """Rows in memory that say what was put, and fail while they are told to."""

    def __init__(self, max_bytes: int = 10_000_000) -> None:
        super().__init__(max_bytes, 100_000.0)
        self.put: list[Row] = []
        self.ill = False

    def put_many(self, rows: Sequence[Row]) -> None:
        self.put += rows
        super().put_many(rows)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if self.ill:
            raise StoreError("it cannot be read")
        return super().get_many(keys)


class Shelves:
    """A store, and shelves over it."""

    def __init__(self, max_bytes: int = 10_000_000) -> None:
        self.rows, self.errors = Seen(max_bytes), Errors()

    def shelf(self, encoded: EncodedAs = ENCODED, key: bytes = KEY, max_index_bytes: int = 10_000_000) -> IndexShelf:
        return IndexShelf(self.rows, key, encoded, self.errors, max_index_bytes=max_index_bytes)


@pytest.fixture
def shelves() -> Shelves:
    return Shelves()


def alike(one: PrefixIndex | None, other: PrefixIndex) -> bool:
    assert one is not None
    data = [[segment.data if segment else None for segment in index.segments] for index in (one, other)]
    return (one.digest, one.eps, one.windows, data[0]) == (other.digest, other.eps, other.windows, data[1])


@pytest.mark.parametrize("count", [1, SEGMENT_ROWS, 2 * SEGMENT_ROWS + 7])
def test_what_was_put_is_what_is_read_by_another_shelf_over_the_same_rows(shelves: Shelves, count: int) -> None:
    prefix = prefix_of(unit_rows(count))
    shelves.shelf().put("salt", prefix)
    assert alike(shelves.shelf().get("salt", "p"), build_index(prefix, EPS))
    assert shelves.errors.total == 0


def test_nothing_is_found_under_another_salt_digest_key_or_encoder(shelves: Shelves) -> None:
    shelves.shelf().put("salt", prefix_of(unit_rows(3)))
    assert shelves.shelf().get("other", "p") is None
    assert shelves.shelf().get("salt", "q") is None
    assert shelves.shelf(key=b"o" * 32).get("salt", "p") is None
    assert shelves.shelf(EncodedAs("another encoder", DIMENSION, EPS)).get("salt", "p") is None
    assert shelves.errors.total == 0


def test_two_tenants_with_the_same_output_share_no_row(shelves: Shelves) -> None:
    for salt in ("mine", "yours"):
        shelves.shelf().put(salt, prefix_of(unit_rows(SEGMENT_ROWS + 3)))
    assert len({row.key for row in shelves.rows.put}) == 4
    assert {row.group for row in shelves.rows.put} == {group_of(KEY, "mine"), group_of(KEY, "yours")}
    shelves.shelf().forget("mine")
    assert shelves.shelf().get("mine", "p") is None
    assert shelves.shelf().get("yours", "p") is not None


def test_a_conversation_that_goes_on_takes_the_place_of_its_last_index(shelves: Shelves) -> None:
    rows, shelf = unit_rows(560), shelves.shelf()
    for length in range(20, len(rows) + 1, 20):
        shelf.put("salt", prefix_of(rows[:length], f"{length}"), [f"{length - 20}", f"{length}"])
    assert shelf.get("salt", f"{len(rows) - 20}") is None
    whole = build_index(prefix_of(rows, f"{len(rows)}"), EPS)
    assert alike(shelf.get("salt", whole.digest), whole)
    fresh = Shelves()
    fresh.shelf().put("salt", prefix_of(rows, whole.digest))
    assert shelves.rows.nbytes == fresh.rows.nbytes, "no turn before it left anything of its own"
    shelves.rows.check_integrity()


def test_forks_share_full_segments_and_neither_takes_any_from_the_other(shelves: Shelves) -> None:
    rows, shelf = unit_rows(SEGMENT_ROWS + 40), shelves.shelf()
    other = np.concatenate([rows[: SEGMENT_ROWS + 20], unit_rows(30, seed=1)])
    shelf.put("salt", prefix_of(rows[: SEGMENT_ROWS + 20], "common"))
    shelf.put("salt", prefix_of(rows, "one"), ["common"])
    shelf.put("salt", prefix_of(other, "other"), ["common"])
    shelf.put("salt", prefix_of(rows, "one later"), ["one"])
    for digest, expected in (("one later", rows), ("other", other)):
        assert alike(shelf.get("salt", digest), build_index(prefix_of(expected, digest), EPS))
    assert (shelf.get("salt", "common"), shelf.get("salt", "one")) == (None, None)
    assert len({row.key for row in shelves.rows.put if row.value[:4] == b"LAMS"}) == 1


@pytest.mark.parametrize("how", ["a cap that others fill", "too old", "deleted by another process"])
def test_whatever_the_store_lost_a_conversation_that_goes_on_has_all_of_its_index(how: str) -> None:
    clock, shelf_rows = Clock(), unit_rows(SEGMENT_ROWS + 9)
    rows = MemoryRows(120_000, 1_000.0, clock)
    shelf = IndexShelf(rows, KEY, ENCODED, Errors())
    for length in range(SEGMENT_ROWS, len(shelf_rows) + 1):
        shelf.put("salt", prefix_of(shelf_rows[:length], f"{length}"), [f"{length - 1}"])
        if how == "too old":
            clock.now += 400
        elif how == "deleted by another process":
            rows.delete_group(group_of(KEY, "salt"))
        else:
            rows.put_many([Row(bytes([place]) * 16, b"g" * 16, bytes(14_000)) for place in range(7)])
    shelf.put("salt", prefix_of(shelf_rows, "last"))
    found = shelf.get("salt", "last")
    assert found is not None
    assert found.missing == 0


def test_after_a_tenant_was_forgotten_its_segments_are_written_again(shelves: Shelves) -> None:
    prefix, shelf = prefix_of(unit_rows(SEGMENT_ROWS)), shelves.shelf()
    shelf.put("salt", prefix)
    shelf.forget("salt")
    assert shelves.rows.nbytes == 0
    shelf.put("salt", prefix)
    found = shelf.get("salt", "p")
    assert found is not None
    assert found.missing == 0


def test_over_its_cap_an_index_loses_its_oldest_segments_and_a_smaller_one_has_all(shelves: Shelves) -> None:
    rows = unit_rows(3 * SEGMENT_ROWS)
    cap = build_index(prefix_of(rows), EPS).nbytes - 1
    shelf = shelves.shelf(max_index_bytes=cap)
    shelf.put("salt", prefix_of(rows))
    assert len(shelves.rows.put) == 3
    assert alike(shelf.get("salt", "p"), build_index(prefix_of(rows), EPS, cap))
    assert alike(shelf.build(prefix_of(rows)), build_index(prefix_of(rows), EPS, cap))
    shelf.put("salt", prefix_of(rows[:SEGMENT_ROWS], "first"))
    found = shelf.get("salt", "first")
    assert found is not None
    assert found.missing == 0
    none = shelves.shelf(max_index_bytes=0)
    none.put("salt", prefix_of(rows[:300], "none"))
    found = none.get("salt", "none")
    assert found is not None
    assert (found.missing, found.segments) == (300, (None, None))


def test_segments_that_the_store_lost_are_missing_and_no_error(shelves: Shelves) -> None:
    prefix = prefix_of(unit_rows(SEGMENT_ROWS + 4))
    shelves.shelf().put("salt", prefix)
    segment, _ = shelves.rows.put
    shelves.rows.delete_many([segment.key])
    found = shelves.shelf().get("salt", "p")
    assert found is not None
    assert found.missing == SEGMENT_ROWS
    assert shelves.errors.total == 0


@pytest.mark.parametrize("value", [b"", b"LAMI", b"x" * 500])
def test_what_is_no_index_is_counted_and_not_there(shelves: Shelves, value: bytes) -> None:
    shelves.shelf().put("salt", prefix_of(unit_rows(SEGMENT_ROWS + 4)))
    segment, table = shelves.rows.put
    for damaged, missing in ((Row(segment.key, segment.group, value), SEGMENT_ROWS),
                             (Row(table.key, table.group, table.value[:-1] + b"?"), 4 + SEGMENT_ROWS)):  # fmt: skip
        shelves.rows.put_many([damaged])
        found = shelves.shelf().get("salt", "p")
        assert found is not None
        assert found.missing == missing
    assert shelves.errors.total == 1 + 2
    shelves.rows.put_many([Row(table.key, table.group, value)])
    assert shelves.shelf().get("salt", "p") is None
    assert shelves.errors.total == 4


def test_a_table_of_another_dimension_is_counted_and_not_there(shelves: Shelves) -> None:
    shelves.shelf().put("salt", prefix_of(unit_rows(3)))
    assert shelves.shelf(EncodedAs("the encoder", DIMENSION + 1, EPS)).get("salt", "p") is None
    assert shelves.errors.total == 1


def test_a_store_that_cannot_be_read_is_an_error_for_whoever_asks(shelves: Shelves) -> None:
    shelves.rows.ill = True
    with pytest.raises(StoreError):
        shelves.shelf().get("salt", "p")


def _write(path: str, prefix: PrefixWindows) -> None:
    rows = open_rows(StoreSettings(path, 10_000_000, 1_000.0), "index", KEY, lambda _errors: None)
    shelf = IndexShelf(rows, KEY, ENCODED, lambda _errors: None)
    shelf.put("salt", prefix)
    shelf.close()


def test_another_process_reads_what_one_left_in_a_file_and_its_seal_is_looked_at(tmp_path: Path) -> None:
    path, prefix = str(tmp_path / "lam" / "store.sqlite"), prefix_of(unit_rows(SEGMENT_ROWS + 30))
    process = multiprocessing.get_context("spawn").Process(target=_write, args=(path, prefix))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    errors = Errors()
    for key, expected in ((KEY, 0), (b"x" * 32, SEGMENT_ROWS + 30)):
        rows = open_rows(StoreSettings(path, 10_000_000, 1_000.0), "index", key, errors)
        found = IndexShelf(rows, KEY, ENCODED, errors).get("salt", "p")
        rows.close()
        if expected:
            assert found is None
        else:
            assert alike(found, build_index(prefix, EPS))
    assert errors.total == 1, "the table that somebody with another key sealed"
