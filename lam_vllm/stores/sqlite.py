"""Rows in one SQLite file, for every process of a host."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from lam_vllm.stores.base import KINDS, Kind, Row, StoreError
from lam_vllm.stores.ownership import APPLICATION_ID
from lam_vllm.stores.sqlite_file import SqliteFile

_KEYS_AT_ONCE = 500
_DROPPED_AT_ONCE = 100

# What is charged for a kind is counted by the file itself, so that no process can leave it wrong.
SCHEMA = f"""
CREATE TABLE rows (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    key BLOB NOT NULL,
    tenant BLOB NOT NULL,
    written REAL NOT NULL,
    size INTEGER NOT NULL,
    value BLOB NOT NULL,
    UNIQUE (kind, key)
);
CREATE INDEX rows_by_age ON rows (kind, written);
CREATE INDEX rows_by_tenant ON rows (tenant);
CREATE TABLE totals (kind TEXT PRIMARY KEY, bytes INTEGER NOT NULL);
INSERT INTO totals VALUES {", ".join(f"('{kind}', 0)" for kind in KINDS)};
CREATE TRIGGER row_added AFTER INSERT ON rows BEGIN
    UPDATE totals SET bytes = bytes + new.size WHERE kind = new.kind;
END;
CREATE TRIGGER row_changed AFTER UPDATE OF size ON rows BEGIN
    UPDATE totals SET bytes = bytes + new.size - old.size WHERE kind = new.kind;
END;
CREATE TRIGGER row_dropped AFTER DELETE ON rows BEGIN
    UPDATE totals SET bytes = bytes - old.size WHERE kind = old.kind;
END;
PRAGMA application_id = {APPLICATION_ID};
"""

_PUT = """
INSERT INTO rows (kind, key, tenant, written, size, value) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (kind, key) DO UPDATE SET
    tenant = excluded.tenant, written = excluded.written, size = excluded.size, value = excluded.value
"""
_KNOWN = "INSERT OR IGNORE INTO totals VALUES (?, 0)"
"""A file of an earlier version does not count this kind yet."""


class SqliteRows:
    """See `Rows`. Files are of mode 0600, folders that have to be made of mode 0700; deleted text is overwritten."""

    def __init__(
        self,
        path: Path,
        kind: Kind,
        max_bytes: int,
        retention_seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.nbytes = 0
        self._kind = kind
        self._max_bytes = max_bytes
        self._retention = retention_seconds
        self._clock = clock
        self._file = SqliteFile(path, SCHEMA)
        self._log_holds_dropped = True  # of a process that was killed, for all that is known

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of these keys; see `Rows`."""
        oldest = self._clock() - self._retention
        found: dict[bytes, bytes] = {}
        with self._file.reading() as file:
            for start in range(0, len(keys), _KEYS_AT_ONCE):
                some = keys[start : start + _KEYS_AT_ONCE]
                marks = ",".join("?" * len(some))
                query = (
                    f"SELECT key, CAST(value AS BLOB) FROM rows WHERE kind = ? AND written >= ? AND key IN ({marks})"
                )
                found.update(file.execute(query, (self._kind, oldest, *some)))
        return [found.get(key) for key in keys]

    def put_many(self, rows: Sequence[Row]) -> None:
        """Keep these rows; see `Rows`."""
        now = self._clock()
        kept = [row for row in rows if row.cost <= self._max_bytes]
        with self._file.writing() as file:
            file.execute(_KNOWN, (self._kind,))
            for place, row in enumerate(kept):  # each a little later than the one before
                written = now + place * 1e-6
                file.execute(_PUT, (self._kind, row.key, row.group, written, row.cost, row.value))
            dropped = self._drop_old(file) + self._drop_excess(file)
            nbytes = self._total(file)
        self.nbytes = nbytes
        if dropped:
            self._log_holds_dropped = True

    def delete_many(self, keys: Sequence[bytes]) -> None:
        """Delete these rows; see `Rows`. Their text is in no file any more after the next `refresh`."""
        with self._file.writing() as file:
            for key in keys:
                file.execute("DELETE FROM rows WHERE kind = ? AND key = ?", (self._kind, key))
            nbytes = self._total(file)
        self.nbytes = nbytes
        if keys:
            self._log_holds_dropped = True

    def delete_group(self, group: bytes) -> int:
        """Delete the rows of the group; see `Rows`. Their text is in no file any more when this returns.

        Raises:
            StoreError: the file cannot be written now; or the rows are gone, and text of theirs stays in the log
                beside it while another process reads. To delete them again says whether it is gone.
        """
        with self._file.writing() as file:
            query = "SELECT count(*) FROM rows WHERE tenant = ? AND kind = ?"
            (deleted,) = file.execute(query, (group, self._kind)).fetchone()
            file.execute("DELETE FROM rows WHERE tenant = ?", (group,))
            nbytes = self._total(file)
        self.nbytes = nbytes
        self._file.drop_damaged()
        if not self._empty_log():
            raise StoreError(f"{self._file.path}: the rows are deleted, but a reader keeps their text in the log")
        return int(deleted)

    def refresh(self) -> None:
        """Drop what is too old; see `Rows`. A damaged file that was moved aside grows old like its rows."""
        with self._file.writing() as file:
            dropped = self._drop_old(file)
            nbytes = self._total(file)
        self.nbytes = nbytes
        if dropped or self._log_holds_dropped:
            self._empty_log()
        self._file.drop_damaged(self._clock() - self._retention)

    def check_integrity(self) -> None:
        """See `Rows`."""
        with self._file.reading() as file:
            query = "SELECT coalesce(sum(size), 0), coalesce(sum(length(value)), 0) FROM rows WHERE kind = ?"
            held, values = file.execute(query, (self._kind,)).fetchone()
            total, state = self._total(file), file.execute("PRAGMA integrity_check").fetchone()[0]
        if not values <= held == total <= self._max_bytes or state != "ok":
            raise AssertionError(f"{held} bytes held, {total} charged, {self._max_bytes} allowed; SQLite says {state}")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _total(self, file: sqlite3.Connection) -> int:
        query = "SELECT coalesce(sum(bytes), 0) FROM totals WHERE kind = ?"
        (total,) = file.execute(query, (self._kind,)).fetchone()
        return int(total)

    def _drop_old(self, file: sqlite3.Connection) -> int:
        oldest = self._clock() - self._retention
        return file.execute("DELETE FROM rows WHERE kind = ? AND written < ?", (self._kind, oldest)).rowcount

    def _drop_excess(self, file: sqlite3.Connection) -> int:
        """Drop rows, those written longest ago first, until the rest fits; how many."""
        query = "SELECT id, size FROM rows WHERE kind = ? ORDER BY written, id LIMIT ?"
        dropped = 0
        while (excess := self._total(file) - self._max_bytes) > 0:
            oldest = file.execute(query, (self._kind, _DROPPED_AT_ONCE)).fetchall()
            if not oldest:
                break
            for identity, size in oldest:
                if excess > 0:
                    file.execute("DELETE FROM rows WHERE id = ?", (identity,))
                    excess -= size
                    dropped += 1
        return dropped

    def _empty_log(self) -> bool:
        """Have dropped text out of the log; False where a reader is in the way, and a later refresh has to do it."""
        self._log_holds_dropped = emptied = False  # before: what another thread drops meanwhile says so itself
        try:
            emptied = self._file.empty_log()
        finally:
            if not emptied:
                self._log_holds_dropped = True
        return emptied
