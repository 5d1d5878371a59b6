"""A store behind a queue: whoever puts a row goes on at once, and what the store cannot do is counted."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from threading import Condition, Lock, Thread

from lam_vllm.stores.base import OnError, Row, Rows, StoreError

logger = logging.getLogger(__name__)

MAX_PENDING_BYTES = 64_000_000
"""Rows that wait to be written; one for which there is no room is lost."""
MAX_GONE = 10_000
"""Keys that wait to be deleted; past so many the oldest rows stay until they are too old."""
BATCH_BYTES = 4_000_000
BATCH_ROWS = 1_000
PAUSE_SECONDS = 2.0
"""A store that failed is left alone so long: reads fail at once, and rows wait."""
REFRESH_SECONDS = 10.0
"""Old rows are dropped so often, and the bytes that other processes keep are looked up."""
CLOSE_SECONDS = 2.0
"""How long `close` waits for what is still to be written."""


class RowsBehind:
    """Rows of a slow store. `put_many` never waits and never fails, `get_many` waits for one answer at most.

    A row is readable as soon as it was put, and gone as soon as it was deleted. `on_error` is told of each try of the
    store that failed, of each read that failed because it is left alone, and of each row that was lost, or not deleted,
    because too many waited.
    """

    def __init__(
        self,
        rows: Rows,
        on_error: OnError,
        *,
        label: str = "the store",
        pause_seconds: float = PAUSE_SECONDS,
        max_pending_bytes: int = MAX_PENDING_BYTES,
    ) -> None:
        self._rows = rows
        self._on_error = on_error
        self._label = label
        self._pause = pause_seconds
        self._max_pending = max_pending_bytes
        self._pending: OrderedDict[bytes, Row] = OrderedDict()
        self._pending_bytes = 0
        self._gone: OrderedDict[bytes, object] = OrderedDict()  # keys to delete, each with a token of its own
        self._changed = Condition()
        self._writing = Lock()  # held while rows are on their way, so that a deletion comes before or after them
        self._again_at = self._refresh_at = 0.0
        self._ill = False
        self._closed = False
        self._thread = Thread(target=self._work, name="lam-store", daemon=True)
        self._thread.start()

    @property
    def nbytes(self) -> int:
        """Bytes kept, as far as they are known; see `Rows`."""
        return self._rows.nbytes

    @property
    def pending(self) -> int:
        """Rows that wait to be written."""
        return len(self._pending)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of these keys; see `Rows`. Fails at once while the store is left alone."""
        with self._changed:
            waiting: dict[bytes, bytes | None] = dict.fromkeys(key for key in keys if key in self._gone)
            waiting |= {key: row.value for key in keys if (row := self._pending.get(key)) is not None}
        asked = [key for key in keys if key not in waiting]
        found = waiting | dict(zip(asked, self._read(asked), strict=True)) if asked else waiting
        return [found[key] for key in keys]

    def put_many(self, rows: Sequence[Row]) -> None:
        """Let these rows wait to be written."""
        lost = 0
        with self._changed:
            for row in rows:
                before = self._pending.get(row.key)
                more = row.cost - (before.cost if before else 0)
                if self._closed or self._pending_bytes + more > self._max_pending:
                    lost += 1
                    continue
                self._gone.pop(row.key, None)
                self._pending[row.key] = row
                self._pending_bytes += more
            self._changed.notify_all()
        if lost:
            self._on_error(lost)

    def delete_many(self, keys: Sequence[bytes]) -> None:
        """Let these rows be deleted, after what waits to be written; never waits for the store."""
        with self._changed:
            self._forget([self._pending[key] for key in dict.fromkeys(keys) if key in self._pending])
            for key in keys:
                self._gone[key] = object()
            lost = len(self._gone) if self._closed else max(0, len(self._gone) - MAX_GONE)
            for _ in range(lost):
                self._gone.popitem(last=False)
            self._changed.notify_all()
        if lost:
            self._on_error(lost)

    def delete_group(self, group: bytes) -> int:
        """Delete every row of the group, those that wait here too. Waits for the store, and raises as it does.

        What waits in other processes is written later on.
        """
        with self._writing:
            with self._changed:
                waiting = [row for row in self._pending.values() if row.group == group]
                self._forget(waiting)
            try:
                known = self._rows.get_many([row.key for row in waiting]) if waiting else []
                return self._rows.delete_group(group) + known.count(None)
            except Exception:
                self._on_error(1)
                raise

    def refresh(self) -> None:
        """Drop what is too old. Waits for the store, and raises as it does."""
        self._rows.refresh()

    def check_integrity(self) -> None:
        """See `Rows`."""
        with self._changed:
            assert self._pending_bytes == sum(row.cost for row in self._pending.values())
        self._rows.check_integrity()

    def flush(self, seconds: float) -> bool:
        """Wait until nothing waits to be written or deleted; whether that came about in so many seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waits, seconds)

    def close(self) -> None:
        """Write what can be written within `CLOSE_SECONDS`, then let go of the store. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(CLOSE_SECONDS)
        with self._changed:
            lost = len(self._pending) + len(self._gone)
            self._forget(list(self._pending.values()))
            self._gone.clear()
        if lost:
            self._on_error(lost)
        if not self._thread.is_alive():
            self._rows.close()

    def _read(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        if self._resting > 0:
            self._on_error(1)
            raise StoreError(f"{self._label} failed a moment ago and is left alone")
        try:
            return self._rows.get_many(keys)
        except Exception as error:
            self._failed(error)
            raise error if isinstance(error, StoreError) else StoreError(str(error)) from error

    @property
    def _resting(self) -> float:
        """Seconds for which the store is still left alone; not above 0 where it may be tried."""
        return self._again_at - time.monotonic()

    @property
    def _waits(self) -> bool:
        return bool(self._pending or self._gone)

    def _work(self) -> None:
        """Write what waits, and refresh now and then, until closed and empty, or closed and failing."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waits or self._closed, self._refresh_at - time.monotonic())
                self._changed.wait_for(lambda: self._closed, self._resting)
                if self._closed and (not self._waits or self._resting > 0):
                    return
            try:
                self._step()
            except Exception as error:  # noqa: BLE001 - whatever it is, the store may work later
                self._failed(error)

    def _step(self) -> None:
        if self._pending:
            self._write()
        if self._gone and not self._pending:  # what takes the place of a row comes before its end
            self._delete()
        if time.monotonic() >= self._refresh_at:
            self._refresh_at = time.monotonic() + REFRESH_SECONDS
            self._rows.refresh()
        if self._ill:
            self._ill = False
            logger.warning("lam: %s works again", self._label)

    def _write(self) -> None:
        with self._writing:
            with self._changed:
                batch = _first(self._pending.values())
            self._rows.put_many(batch)
            with self._changed:
                self._forget(batch)

    def _delete(self) -> None:
        with self._writing:
            with self._changed:
                batch = list(self._gone.items())[:BATCH_ROWS]
            self._rows.delete_many([key for key, _ in batch])
            with self._changed:
                for key, token in batch:
                    if self._gone.get(key) is token:
                        del self._gone[key]
                self._changed.notify_all()

    def _forget(self, rows: Sequence[Row]) -> None:
        """These wait no longer, unless they were put again meanwhile; called with the lock held."""
        for row in rows:
            if self._pending.get(row.key) is row:
                del self._pending[row.key]
                self._pending_bytes -= row.cost
        self._changed.notify_all()

    def _failed(self, error: Exception) -> None:
        with self._changed:
            self._again_at = time.monotonic() + self._pause
            first, self._ill = not self._ill, True
        if first:
            logger.warning("lam: %s failed and is tried again every %g s: %s", self._label, self._pause, error)
        self._on_error(1)


def _first(rows: Iterable[Row]) -> list[Row]:
    """As many of the first rows as go together, at least one."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        size += row.cost
        if batch and (size > BATCH_BYTES or len(batch) == BATCH_ROWS):
            break
        batch.append(row)
    return batch
