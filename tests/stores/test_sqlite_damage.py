"""A file that is damaged: it is moved aside, kept for as long as its rows would have been, and a new one begun."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from lam_vllm.stores import StoreError, ownership
from lam_vllm.stores.ownership import why_foreign
from lam_vllm.stores.sqlite import SqliteRows
from tests.stores.conftest import GROUPS, RETENTION, Clock, get, row
from tests.stores.sqlite_store import (
    CAP,
    DAMAGES,
    header,
    mode,
    names,
    overwrite,
    rows_of,
    said,
    text,
    text_in,
    until_it_works,
    writing,
)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_moved_aside_and_a_new_one_begun(
    damage: Callable[[Path], None], filled: SqliteRows, path: Path
) -> None:
    damage(path)
    assert len(until_it_works(filled)) == 1
    assert get(filled, "new", "row 1") == [b"text", None]
    assert (path.with_name("store.sqlite.lam-damaged")).exists()
    assert {mode(file) for file in path.parent.iterdir()} == {0o600}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_is_damaged_while_it_is_open_works_again_and_gives_no_wrong_row(
    damage: Callable[[Path], None], filled: SqliteRows, path: Path
) -> None:
    assert None not in get(filled, *names(100))
    damage(path)
    until_it_works(filled)
    filled.close()  # and what was in memory
    until_it_works(filled)
    assert get(filled, "new") == [b"text"]
    for number, value in enumerate(get(filled, *names(100))):
        assert value in (None, bytes([number]) * 5_000)


def test_damage_in_an_open_file_is_found_by_every_process_and_moved_aside_once(filled: SqliteRows, path: Path) -> None:
    other = rows_of(path)
    assert get(other, "row 1") == get(filled, "row 1") == [b"\1" * 5_000]
    text(path)
    errors = [until_it_works(rows) for rows in (filled, other)]
    assert sum(map(len, errors)) >= 1
    assert get(filled, "new") == get(other, "new") == [b"text"]
    other.put_many([row("of the other")])
    assert get(filled, "of the other") == [b"of the other"]
    assert [file.name for file in path.parent.glob("*damaged")] == ["store.sqlite.lam-damaged"]
    other.close()


def test_what_was_damaged_and_is_another_file_by_now_is_not_moved_aside(filled: SqliteRows, path: Path) -> None:
    other = rows_of(path)
    damage = sqlite3.DatabaseError("database disk image is malformed")
    damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    with pytest.raises(StoreError), filled._file.reading():  # noqa: PT012 - what another process does meanwhile
        path.rename(path.with_name("moved by the other"))
        other.put_many([row("new")])
        raise damage
    assert get(filled, "new") == get(other, "new") == [b"new"]
    assert not path.with_name("store.sqlite.lam-damaged").exists()
    other.close()


def test_a_log_of_garbage_costs_what_was_in_it_at_most(filled: SqliteRows, path: Path) -> None:
    wal = path.with_name("store.sqlite-wal")
    wal.write_bytes(os.urandom(50_000))
    assert get(filled, "row 7") == [b"\7" * 5_000]
    filled.put_many([row("new")])
    filled.check_integrity()


def test_a_store_that_was_damaged_before_this_process_used_it_is_known_by_its_log(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writing(path, "one", 3) as writer:
        said(writer, 3)
        writer.kill()
        writer.wait()
    header(path)
    assert why_foreign(path) is None
    rows = rows_of(path)
    until_it_works(rows)
    assert get(rows, "one 0", "new") == [bytes(3_000), b"text"]
    rows.close()
    path.with_name("store.sqlite-wal").unlink(missing_ok=True)
    header(path)
    monkeypatch.setattr(ownership, "_opened", set())
    assert why_foreign(path) == "is not a store of this package"


def moved_aside(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.glob("*lam-damaged*"))


def test_what_was_moved_aside_is_kept_no_longer_than_the_rows_in_it(filled: SqliteRows, path: Path) -> None:
    clock = Clock()
    rows = SqliteRows(path, "records", CAP, RETENTION, clock)
    text(path)
    os.utime(path, (1_000, 1_000))  # nothing was written for long
    until_it_works(filled)
    clock.now = path.stat().st_mtime
    path.with_name("store.sqlite.lam-damaged-wal").write_text("what was in its log")
    rows.refresh()
    assert moved_aside(path) == ["store.sqlite.lam-damaged", "store.sqlite.lam-damaged-wal"]
    clock.now += RETENTION + 10
    rows.refresh()
    assert moved_aside(path) == []
    rows.close()


def test_what_was_moved_aside_goes_with_a_tenant_who_is_deleted(filled: SqliteRows, path: Path) -> None:
    overwrite(path, 0, b"no database")
    until_it_works(filled)
    assert text_in(path, bytes([7]) * 1_000) == ["store.sqlite.lam-damaged"]
    assert filled.delete_group(GROUPS[0]) == 1
    assert moved_aside(path) == text_in(path, bytes([7]) * 1_000) == []
