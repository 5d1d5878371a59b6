"""A store in a SQLite file, processes that write it, and what can happen to it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lam_vllm.stores import StoreError
from lam_vllm.stores.sqlite import SqliteRows
from tests.conftest import ROOT
from tests.stores.conftest import RETENTION, get, row, tries

CAP = 50_000_000
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


def rows_of(path: Path, max_bytes: int = CAP) -> SqliteRows:
    return SqliteRows(path, "records", max_bytes, RETENTION)


def names(number: int) -> list[str]:
    return [f"row {place}" for place in range(number)]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


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


def text_in(path: Path, data: bytes) -> list[str]:
    """The files beside the store, and itself, that hold this text."""
    return sorted(file.name for file in path.parent.iterdir() if data in file.read_bytes())
