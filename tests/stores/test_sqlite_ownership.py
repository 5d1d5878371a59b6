"""A path where something of somebody else is: it is left as it is."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from lam_vllm.stores import StoreError
from lam_vllm.stores.ownership import APPLICATION_ID, why_foreign
from lam_vllm.stores.sqlite import SqliteRows
from tests.stores.conftest import GROUPS, get, row
from tests.stores.sqlite_store import header, mode, rows_of, said, text, until_it_works, writing


def notes(path: Path) -> None:
    path.write_text("notes of a run\n" * 1_000)


def other_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("CREATE TABLE mine (a)")


def database_of_another_id(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA application_id = 7")


def damaged_database(path: Path) -> None:
    """Of another program, which was killed: its log is beside it."""
    with closing(sqlite3.connect(path)) as other:
        other.executescript("PRAGMA journal_mode = WAL; CREATE TABLE mine (a);")
        log = path.with_name(f"{path.name}-wal")
        kept = log.read_bytes()
    log.write_bytes(kept)
    header(path)


def directory(path: Path) -> None:
    path.mkdir()
    (path / "in it").touch()


def seen(folder: Path) -> dict[str, tuple[int, float, bytes | None]]:
    """Names, modes, times and contents of everything in a folder."""
    return {
        str(file.relative_to(folder)): (mode(file), file.stat().st_mtime, file.read_bytes() if file.is_file() else None)
        for file in folder.rglob("*")
    }


@pytest.mark.parametrize(
    "make", [notes, other_database, database_of_another_id, damaged_database, directory]
)  # fmt: skip
def test_a_file_of_another_program_is_left_alone(make: Callable[[Path], None], path: Path) -> None:
    path.parent.mkdir()
    make(path)
    path.chmod(0o755)
    os.utime(path, (1_000, 1_000))
    before = seen(path.parent)
    rows = rows_of(path)
    for use in (lambda: get(rows, "a"), lambda: rows.put_many([row("a")]), rows.refresh,
                lambda: rows.delete_group(GROUPS[0])):  # fmt: skip
        with pytest.raises(StoreError, match="is no regular file|is not a store of this package"):
            use()
    rows.close()
    assert seen(path.parent) == before


def test_another_file_that_looks_like_one_that_was_moved_aside_is_left_alone(filled: SqliteRows, path: Path) -> None:
    other = path.with_name("store.sqlite.damaged")
    notes(other)
    os.utime(other, (1_000, 1_000))
    text(path)
    until_it_works(filled)
    filled.refresh()
    filled.delete_group(GROUPS[0])
    assert other.stat().st_mtime == 1_000


def test_an_empty_file_is_a_place_for_a_store(path: Path) -> None:
    path.parent.mkdir()
    path.touch(0o644)
    rows = rows_of(path)
    rows.put_many([row("a")])
    assert (get(rows, "a"), mode(path)) == ([b"a"], 0o600)
    rows.close()


def test_what_a_file_is_stands_in_it_before_there_is_a_log(path: Path) -> None:
    with writing(path, "one", 1) as writer:
        said(writer, 1)
        assert why_foreign(path) is None
        with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as without_log:
            assert without_log.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
