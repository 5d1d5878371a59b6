"""A file that several processes share: who may read it, what they write, and a disk that fails."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lam_vllm.stores import StoreError
from lam_vllm.stores.base import ROW_BYTES
from lam_vllm.stores.sqlite import SqliteRows
from tests.stores.conftest import get, row
from tests.stores.sqlite_store import mode, rows_of, said, writing

ROWS_EACH = 300


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


def test_files_that_others_could_read_are_closed_to_them_and_a_folder_that_was_there_stays(
    filled: SqliteRows, path: Path
) -> None:
    filled.put_many([row("new")])
    for file in path.parent.iterdir():
        file.chmod(0o644)
    path.parent.chmod(0o755)
    other = rows_of(path)
    assert get(other, "row 1") == [b"\1" * 5_000]
    assert {mode(file) for file in path.parent.iterdir()} == {0o600}
    assert mode(path.parent) == 0o755
    other.close()


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
