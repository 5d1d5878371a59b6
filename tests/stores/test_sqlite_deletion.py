"""Text that was deleted, or driven out: in which files it still is, and when it is in none."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from lam_vllm.stores import StoreError
from tests.stores.conftest import GROUPS, get, row
from tests.stores.sqlite_store import rows_of, text_in

SECRET = b"a secret of a tenant " * 100


def test_deleted_text_is_in_no_file_any_more(path: Path) -> None:
    rows = rows_of(path)
    rows.put_many([row("a", b"a secret " * 2_000), row("b", b"of another ", GROUPS[1])])
    rows.delete_group(GROUPS[0])
    left = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert b"a secret" not in left
    assert b"of another" in left
    rows.close()


@contextmanager
def a_reader(path: Path) -> Iterator[None]:
    """Another connection that reads all the while, and sees the rows that there are now."""
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM rows").fetchall()
        yield
        reader.execute("COMMIT")


def test_a_deletion_says_so_while_a_reader_keeps_the_text_and_the_next_refresh_makes_up_for_it(path: Path) -> None:
    rows = rows_of(path)
    rows.put_many([row("a", SECRET), row("b", group=GROUPS[1])])
    with a_reader(path):
        with pytest.raises(StoreError, match="a reader keeps their text"):
            rows.delete_group(GROUPS[0])
        assert get(rows, "a", "b") == [None, b"b"]
        assert text_in(path, SECRET[:20]) != []
        rows.refresh()
    rows.refresh()
    assert text_in(path, SECRET[:20]) == []
    assert rows.delete_group(GROUPS[0]) == 0
    rows.close()


def test_text_that_was_driven_out_is_in_no_file_after_the_next_refresh(path: Path) -> None:
    rows = rows_of(path, 3 * len(SECRET))
    rows.put_many([row("a", SECRET)])
    rows.refresh()
    for number in range(5):
        rows.put_many([row(f"row {number}", b"z" * len(SECRET))])
    assert get(rows, "a") == [None]
    assert text_in(path, SECRET[:20]) != []
    rows.refresh()
    assert text_in(path, SECRET[:20]) == []
    rows.close()


def test_what_a_process_that_is_gone_left_in_the_log_goes_with_the_first_refresh_of_another(path: Path) -> None:
    gone = rows_of(path)
    gone.put_many([row("a", SECRET)])
    with gone._file.writing() as file:
        file.execute("DELETE FROM rows")
    assert text_in(path, SECRET[:20]) != []
    other = rows_of(path)
    other.refresh()
    assert text_in(path, SECRET[:20]) == []
    gone.close()
    other.close()
