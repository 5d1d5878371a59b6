"""One SQLite file that several processes use, opened anew whenever it is not the file that it was."""

from __future__ import annotations

import logging
import math
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

from lam_vllm.stores.base import StoreError
from lam_vllm.stores.folder import BUSY_SECONDS, alone
from lam_vllm.stores.ownership import (
    APPLICATION_ID,
    SUFFIXES,
    forget,
    identity_of,
    make_private,
    remember,
    why_foreign,
)

logger = logging.getLogger(__name__)

WAL_BYTES = 16_000_000
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}
_PASSING = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL}
"""After any other error the file is opened anew: what was opened while it could not be written stays so."""


class SqliteFile:
    """The connection to `path`, whose tables are made by `schema`. Safe to use from several threads.

    A file that is gone, or was replaced, is opened anew by the next use; one that is damaged is renamed to
    `<path>.lam-damaged`, in place of an earlier one, so that the next use begins a new one. What is at `path` and is
    no store of this package is an error, and is left as it is.
    """

    def __init__(self, path: Path, schema: str) -> None:
        self.path = path
        self._damaged = path.with_name(path.name + ".lam-damaged")
        self._schema = schema
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None
        self._identity = (0, 0)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, for queries.

        Raises:
            StoreError: the file cannot be opened, read or written now, was damaged, or is somebody else's.
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

    def empty_log(self) -> bool:
        """Have deleted text out of the write-ahead log too; False where a reader is in the way. Raises as `reading`."""
        with self.reading() as connection:
            busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy

    def drop_damaged(self, moved_before: float = math.inf) -> None:
        """Delete what was moved aside, if that was before this second of the system's clock.

        Raises:
            StoreError: it cannot be deleted.
        """
        for suffix in SUFFIXES:
            file = self._damaged.with_name(self._damaged.name + suffix)
            try:
                if file.stat().st_mtime < moved_before:
                    file.unlink()
            except FileNotFoundError:
                pass
            except OSError as error:
                raise StoreError(str(error)) from error

    def close(self) -> None:
        """Close the connection; a later use opens it again."""
        with self._lock:
            self._let_go()

    def _current(self) -> sqlite3.Connection:
        if self._identity != identity_of(self.path):
            self._let_go()
            forget(self._identity)
        if self._connection is None:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with alone(self.path.parent):
                self._connection = self._open()
        return self._connection

    def _open(self) -> sqlite3.Connection:
        why = why_foreign(self.path)
        if why is not None:
            raise StoreError(f"{self.path} {why}")
        make_private(self.path)
        self._identity = identity_of(self.path)
        remember(self._identity)
        connection = sqlite3.connect(self.path, BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA secure_delete = ON")
            if self._is_new(connection):  # before there is a log: whose file it is stands in the file itself
                connection.executescript(f"BEGIN IMMEDIATE; {self._schema} COMMIT;")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")  # a killed process loses nothing, a power cut the last
            connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
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

    def _move_aside(self, damage: sqlite3.Error) -> None:
        """Rename the file, unless another process did so first: then the file is another one by now."""
        try:
            with alone(self.path.parent):
                if identity_of(self.path) != self._identity:
                    return
                for suffix in SUFFIXES:  # the file itself last: until then whoever opens it finds that it is damaged
                    self._rename(suffix)
        except OSError as error:
            logger.error("lam: %s is damaged (%s), and cannot be moved aside: %s", self.path, damage, error)
            return
        logger.error("lam: %s is damaged (%s); it is kept as %s for now, and a new one begun",
                     self.path, damage, self._damaged)  # fmt: skip

    def _rename(self, suffix: str) -> None:
        source = self.path.with_name(self.path.name + suffix)
        with suppress(FileNotFoundError):
            os.utime(source)  # its retention begins now
            source.replace(self._damaged.with_name(self._damaged.name + suffix))


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
