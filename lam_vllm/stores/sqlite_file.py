"""One SQLite file that several processes use, opened anew whenever it is not the file that it was."""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

from lam_vllm.stores.base import StoreError

logger = logging.getLogger(__name__)

BUSY_SECONDS = 2.0
"""How long a write waits for another process's."""
APPLICATION_ID = 0x6C616D31  # lam1
"""Says of a SQLite file that it is a store of this package: nothing is written into any other."""
WAL_BYTES = 16_000_000
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}
_PASSING = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL}
"""After any other error the file is opened anew: what was opened while it could not be written stays so."""
_SUFFIXES = ("-wal", "-shm", "")


class SqliteFile:
    """The connection to `path`, whose tables are made by `schema`. Safe to use from several threads.

    A file that is gone, or was replaced, is opened anew by the next use; one that is damaged is renamed to
    `<path>.damaged`, in place of an earlier one, so that the next use begins a new one.
    """

    def __init__(self, path: Path, schema: str) -> None:
        self.path = path
        self.damaged = path.with_name(path.name + ".damaged")
        self._schema = schema
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None
        self._identity = (0, 0)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, for queries.

        Raises:
            StoreError: the file cannot be opened, read or written now, or was damaged.
        """
        with self._lock:
            try:
                yield self._current()
            except sqlite3.Error as error:
                if _code(error) not in _PASSING:
                    self._let_go()
                if _code(error) in _DAMAGED:
                    self._move_aside(error)
                raise StoreError(f"{self.path}: {error}") from error
            except OSError as error:
                self._let_go()
                raise StoreError(str(error)) from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The connection in a transaction, which is kept when the block ends well. Raises as `reading`."""
        with self.reading() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    def close(self) -> None:
        """Close the connection; a later use opens it again."""
        with self._lock:
            self._let_go()

    def _current(self) -> sqlite3.Connection:
        if self._connection is not None and self._identity != _identity(self.path):
            self._let_go()
        if self._connection is None:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _alone(self.path.parent):
                self._connection = self._open()
        return self._connection

    def _open(self) -> sqlite3.Connection:
        _make_private(self.path)
        self._identity = _identity(self.path)
        connection = sqlite3.connect(self.path, BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            new = self._is_new(connection)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")  # a killed process loses nothing, a power cut the last
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
            if new:
                connection.executescript(f"BEGIN IMMEDIATE; {self._schema} COMMIT;")
        except BaseException:
            connection.close()
            raise
        return connection

    def _is_new(self, connection: sqlite3.Connection) -> bool:
        """Whether the file is empty. Raises StoreError where another program made it."""
        if connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID:
            return False
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise StoreError(f"{self.path} is a SQLite file of another program")
        return True

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _move_aside(self, error: sqlite3.Error) -> None:
        """Rename the file, unless another process did so first: then the file is another one by now."""
        with _alone(self.path.parent):
            if _identity(self.path) != self._identity:
                return
            logger.error(
                "lam: %s is damaged (%s); it is kept as %s, and a new one begun", self.path, error, self.damaged
            )
            for suffix in _SUFFIXES:  # the file itself last: until then whoever opens it finds that it is damaged
                with suppress(FileNotFoundError):
                    os.replace(f"{self.path}{suffix}", f"{self.damaged}{suffix}")  # noqa: PTH105 - names, not paths


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _identity(path: Path) -> tuple[int, int]:
    """What tells a file from another one of the same name; (0, 0) where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_dev, found.st_ino


def _make_private(path: Path) -> None:
    """Make the file where there is none, and let its owner alone read it; SQLite gives its companions the same mode.

    It is made under another name first: closing a file gives up every lock that the process holds on it, and another
    thread may have opened this one with SQLite by then.
    """
    if path.exists():
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        return
    handle, name = tempfile.mkstemp(prefix=path.name, dir=path.parent)
    os.close(handle)
    try:
        Path(path).hardlink_to(name)
    except FileExistsError:
        pass  # another process was quicker
    finally:
        Path(name).unlink()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No other thread or process makes, opens or renames a store in this folder meanwhile.

    Raises:
        TimeoutError: another one does so all the time.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        until = time.monotonic() + BUSY_SECONDS
        while not _locked(handle):
            if time.monotonic() > until:
                raise TimeoutError(f"{folder} is locked by another process")
            time.sleep(0.005)
        yield
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
