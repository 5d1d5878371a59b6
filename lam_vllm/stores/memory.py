"""Rows in the memory of this process."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import islice
from threading import Lock

from lam_vllm.stores.base import Row

_DROPPED_AT_ONCE = 1_000
"""Rows that are too old: at most so many go with each call that puts some."""


class MemoryRows:
    """See `Rows`. The least recently used goes first, and a row that is read was used.

    Nobody need call `refresh`: whoever puts rows drops those that are too old.
    """

    def __init__(self, max_bytes: int, retention_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.nbytes = 0
        self._max_bytes = max_bytes
        self._retention = retention_seconds
        self._clock = clock
        self._rows: OrderedDict[bytes, Row] = OrderedDict()  # the least recently used first
        self._written: OrderedDict[bytes, float] = OrderedDict()  # the oldest first
        self._lock = Lock()

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of these keys; see `Rows`."""
        with self._lock:
            return [self._get(key) for key in keys]

    def put_many(self, rows: Sequence[Row]) -> None:
        """Keep these rows; see `Rows`."""
        with self._lock:
            self._drop_old(_DROPPED_AT_ONCE)
            for row in rows:
                if row.cost > self._max_bytes:
                    continue
                self._drop(row.key)
                self._rows[row.key], self._written[row.key] = row, self._clock()
                self.nbytes += row.cost
                while self.nbytes > self._max_bytes:
                    self._drop(next(iter(self._rows)))

    def delete_many(self, keys: Sequence[bytes]) -> None:
        """Delete these rows; see `Rows`."""
        with self._lock:
            for key in keys:
                self._drop(key)

    def delete_group(self, group: bytes) -> int:
        """Delete the rows of the group; see `Rows`. This process keeps those of no other kind here."""
        with self._lock:
            keys = [key for key, row in self._rows.items() if row.group == group]
            for key in keys:
                self._drop(key)
            return len(keys)

    def refresh(self) -> None:
        """Drop what is too old."""
        with self._lock:
            self._drop_old(len(self._rows))

    def check_integrity(self) -> None:
        """See `Rows`."""
        with self._lock:
            held = sum(row.cost for row in self._rows.values())
        if held != self.nbytes or held > self._max_bytes or self._rows.keys() != self._written.keys():
            raise AssertionError(f"{held} bytes held, {self.nbytes} charged, {self._max_bytes} allowed")

    def close(self) -> None:
        """Nothing is left to be done."""

    def _get(self, key: bytes) -> bytes | None:
        row = self._rows.get(key)
        if row is None or self._written[key] < self._clock() - self._retention:
            return None
        self._rows.move_to_end(key)
        return row.value

    def _drop(self, key: bytes) -> None:
        row = self._rows.pop(key, None)
        if row is not None:
            del self._written[key]
            self.nbytes -= row.cost

    def _drop_old(self, most: int) -> None:
        oldest = self._clock() - self._retention
        for key, written in list(islice(self._written.items(), most)):
            if written >= oldest:
                return
            self._drop(key)
