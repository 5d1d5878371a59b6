"""A file that several processes share, and everything that can happen to a file."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lam_vllm.stores import StoreError
from lam_vllm.stores.base import ROW_BYTES
from lam_vllm.stores.sqlite import SqliteRows
from tests.conftest import ROOT
from tests.stores.conftest import GROUPS, RETENTION, Clock, get, row, tries

CAP = 50_000_000
ROWS_EACH = 300


def rows_of(path: Path, max_bytes: int = CAP) -> SqliteRows:
    return SqliteRows(path, "records", max_bytes, RETENTION)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made" / "store.sqlite"


@pytest.fixture
def filled(path: Path) -> Iterator[SqliteRows]:
    """Rows of many pages, in the file itself: nothing is in its log."""
    rows = rows_of(path)
    rows.put_many([row(f"row {number}", bytes([number]) * 5_000) for number in range(100)])
    rows.close()
    yield rows
    rows.close()


def names(number: int) -> list[str]:
    return [f"row {place}" for place in range(number)]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_nobody_else_may_read_the_files_or_the_folder_that_was_made(path: Path) -> None:
    before = os.umask(0)
    try:
        rows = rows_of(path)
        rows.put_many([row("a")])
    finally:
        os.umask(before)
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["store.sqlite", "store.sqlite-shm", "store.sqlite-wal"]
    assert {mode(file) for file in files} == {0o600}
    assert mode(path.parent) == 0o700
    rows.close()


def test_a_file_that_others_could_read_is_closed_to_them_and_a_folder_that_was_there_stays(
    filled: SqliteRows, path: Path
) -> None:
    path.chmod(0o644)
    path.parent.chmod(0o755)
    assert get(filled, "row 1") == [b"\1" * 5_000]
    assert (mode(path), mode(path.parent)) == (0o600, 0o755)


def test_deleted_text_is_in_no_file_any_more(path: Path) -> None:
    rows = rows_of(path)
    rows.put_many([row("a", b"a secret " * 2_000), row("b", b"of another ", GROUPS[1])])
    rows.delete_group(GROUPS[0])
    left = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert b"a secret" not in left
    assert b"of another" in left
    rows.close()


WRITER = """
import sys
from pathlib import Path
from lam_vllm.stores import Row
from lam_vllm.stores.base import ROW_BYTES
from lam_vllm.stores.sqlite import SqliteRows

path, name, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
rows = SqliteRows(path, "records", 50_000_000, 1_000.0)
for place in range(number):
    rows.put_many([Row(f"{name} {place}".encode().ljust(16, b"."), b"g" * 16, bytes(3_000))])
    print(place, flush=True)
sys.stdin.read()
"""


@contextmanager
def writing(path: Path, name: str, number: int) -> Iterator[subprocess.Popen[str]]:
    """A process that writes so many rows, says so after each one, and waits for the end of its input."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(number)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str], lines: int) -> list[int]:
    assert process.stdout is not None
    return [int(process.stdout.readline()) for _ in range(lines)]


def test_processes_write_one_file_at_the_same_time_and_read_what_the_other_wrote(path: Path) -> None:
    with writing(path, "one", ROWS_EACH) as one, writing(path, "two", ROWS_EACH) as two:
        rows = rows_of(path)
        for place in range(ROWS_EACH):  # a third one, in between
            rows.put_many([row(f"own {place}")])
        assert said(one, ROWS_EACH) == said(two, ROWS_EACH) == list(range(ROWS_EACH))
        wanted = [f"{name} {place}" for name in ("one", "two", "own") for place in range(ROWS_EACH)]
        assert None not in get(rows, *wanted)
        rows.refresh()
        values = 2 * ROWS_EACH * 3_000 + sum(len(f"own {place}") for place in range(ROWS_EACH))
        assert rows.nbytes == 3 * ROWS_EACH * ROW_BYTES + values
        rows.check_integrity()
        rows.close()


def test_the_cap_holds_over_processes(path: Path) -> None:
    with writing(path, "other", ROWS_EACH) as other:
        rows = rows_of(path, 100_000)
        for place in range(ROWS_EACH):
            rows.put_many([row(f"own {place}")])
        said(other, ROWS_EACH)
        rows.put_many([row("last")])
        assert 0 < rows.nbytes <= 100_000
        rows.check_integrity()
        rows.close()


def test_a_writer_that_is_killed_leaves_every_row_that_it_said_was_written(path: Path) -> None:
    for attempt in range(5):
        with writing(path, f"try {attempt}", 100_000) as writer:
            written = said(writer, 20 + 7 * attempt)
            os.kill(writer.pid, signal.SIGKILL)
            writer.wait()
        rows = rows_of(path)
        assert None not in get(rows, *[f"try {attempt} {place}" for place in written])
        rows.check_integrity()
        rows.close()


def overwrite(path: Path, start: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(data)


def header(path: Path) -> None:
    overwrite(path, 0, b"no database" * 20)


def middle(path: Path) -> None:
    for page in range(2, path.stat().st_size // 4096):
        overwrite(path, 4096 * page, os.urandom(200))


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def a_few_bytes(path: Path) -> None:
    os.truncate(path, 37)


def text(path: Path) -> None:
    path.write_text("lorem ipsum\n" * 1_000)


DAMAGES = [header, middle, truncated, a_few_bytes, text]


def until_it_works(rows: SqliteRows) -> list[StoreError]:
    """Use a store as its callers do, until reading and writing work; the errors on the way."""
    errors: list[StoreError] = []
    for _ in tries():
        try:
            get(rows, *names(100))
            rows.put_many([row("new", b"text")])
            rows.check_integrity()
        except StoreError as error:
            errors.append(error)
            continue
        return errors
    raise AssertionError


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_moved_aside_and_a_new_one_begun(
    damage: Callable[[Path], None], filled: SqliteRows, path: Path
) -> None:
    damage(path)
    assert len(until_it_works(filled)) == 1
    assert get(filled, "new", "row 1") == [b"text", None]
    assert (path.with_name("store.sqlite.damaged")).exists()
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
    assert [file.name for file in path.parent.glob("*.damaged")] == ["store.sqlite.damaged"]
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
    assert not path.with_name("store.sqlite.damaged").exists()
    other.close()


def test_a_log_of_garbage_costs_what_was_in_it_at_most(filled: SqliteRows, path: Path) -> None:
    wal = path.with_name("store.sqlite-wal")
    wal.write_bytes(os.urandom(50_000))
    assert get(filled, "row 7") == [b"\7" * 5_000]
    filled.put_many([row("new")])
    filled.check_integrity()


def test_a_file_that_vanished_is_begun_anew(filled: SqliteRows, path: Path) -> None:
    assert get(filled, "row 1") != [None]
    path.unlink()
    assert get(filled, "row 1") == [None]
    filled.put_many([row("new")])
    assert get(filled, "new") == [b"new"]
    for file in path.parent.iterdir():
        file.unlink()
    path.parent.rmdir()
    filled.put_many([row("newer")])
    assert get(filled, "new", "newer") == [None, b"newer"]


def test_a_file_of_another_program_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (a)")
    other.close()
    before = path.read_bytes()
    for use in (lambda rows: get(rows, "a"), lambda rows: rows.put_many([row("a")])):
        with pytest.raises(StoreError, match="of another program"):
            use(rows_of(path))
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_made_is_an_error_until_it_can(tmp_path: Path) -> None:
    (tmp_path / "made").write_text("a file, where a folder should be")
    rows = rows_of(tmp_path / "made" / "store.sqlite")
    for use in (lambda: get(rows, "a"), lambda: rows.put_many([row("a")]), rows.refresh, rows.check_integrity):
        with pytest.raises(StoreError):
            use()
    (tmp_path / "made").unlink()
    rows.put_many([row("a")])
    assert get(rows, "a") == [b"a"]
    rows.close()


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """A small file system of its own in this folder."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def can_mount() -> bool:
    """Whether this process may mount; in a container that may not, these two tests cannot be run."""
    return os.geteuid() == 0 and subprocess.run(["unshare", "--mount", "true"], check=False).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="this process may not mount a file system")
def test_a_full_file_system_is_an_error_until_it_has_room_and_reads_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    with mounted(folder, "size=1m"):
        rows = rows_of(folder / "store.sqlite")
        rows.put_many([row("kept", b"text")])
        with pytest.raises(OSError, match="No space left"):
            (folder / "other").write_bytes(bytes(2_000_000))
        for _ in range(3):
            with pytest.raises(StoreError):
                rows.put_many([row("large", bytes(300_000))])
            assert get(rows, "kept", "large") == [b"text", None]
        (folder / "other").unlink()
        rows.put_many([row("large", bytes(300_000))])
        assert get(rows, "kept", "large") == [b"text", bytes(300_000)]
        rows.check_integrity()
        rows.close()


@pytest.mark.skipif(not can_mount(), reason="this process may not mount a file system")
def test_a_read_only_file_system_is_an_error_until_it_can_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    with mounted(folder, "size=1m"):
        rows = rows_of(folder / "store.sqlite")
        rows.put_many([row("kept", b"text")])
        rows.close()
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        for _ in range(3):
            with pytest.raises(StoreError):
                rows.put_many([row("new")])
        subprocess.run(["mount", "-o", "remount,rw", folder], check=True)
        rows.put_many([row("new")])
        assert get(rows, "kept", "new") == [b"text", b"new"]
        rows.close()


def test_what_was_moved_aside_is_kept_no_longer_than_the_rows_in_it(filled: SqliteRows, path: Path) -> None:
    clock = Clock()
    clock.now = path.stat().st_mtime
    rows = SqliteRows(path, "records", CAP, RETENTION, clock)
    text(path)
    until_it_works(rows)
    rows.refresh()
    damaged = path.with_name("store.sqlite.damaged")
    assert damaged.exists()
    clock.now += RETENTION + 10
    rows.refresh()
    assert not damaged.exists()
    rows.close()
