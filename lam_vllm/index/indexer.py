"""The queue before a shelf: a conversation that goes on is indexed once it is quiet, on nobody's time."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from threading import Condition, Lock, Thread
from typing import NamedTuple

from lam_vllm.index.complete import Completer
from lam_vllm.index.nouns import PrefixWindows
from lam_vllm.index.prefix_index import PrefixIndex
from lam_vllm.index.shelf import IndexShelf
from lam_vllm.stores import OnError

logger = logging.getLogger(__name__)

QUIET_SECONDS, LONGEST_SECONDS = 2.0, 20.0
"""A prefix is written when nothing extended it for so long, or when it has waited so long in all its forms."""
MOST_WAITING_BYTES = 64_000_000
MOST_EARLIER = 16
"""Of the prefixes that one extends so many may still be kept: those of the last few turns."""
WINDOW_BYTES = 300
"""Charged for a window or a gap besides its row."""
CLOSE_SECONDS = 2.0
"""How long `close` waits for what is still to be written."""


class _Waiting(NamedTuple):
    """A prefix, and those that it extends: they are not to be found any more once it is written."""

    salt: str
    prefix: PrefixWindows
    superseded: frozenset[str]
    nbytes: int
    since: float
    due: float


class Indexer:
    """Takes prefixes and writes them later, in a thread of its own. Safe to use from several threads.

    Of a conversation the newest prefix is kept: one that extends another takes its place, while it waits and later on.
    Before it is written its gaps are embedded. `on_error` is told of each one that is lost, because too much waited or
    it could not be written, and of each one whose gaps could not be embedded.
    """

    def __init__(
        self,
        shelf: IndexShelf,
        completer: Completer,
        on_error: OnError,
        *,
        quiet_seconds: float = QUIET_SECONDS,
        longest_seconds: float = LONGEST_SECONDS,
        max_waiting_bytes: int = MOST_WAITING_BYTES,
    ) -> None:
        self._shelf = shelf
        self._completer = completer
        self._on_error = on_error
        self._quiet = quiet_seconds
        self._longest = longest_seconds
        self._max_bytes = max_waiting_bytes
        self._waiting: OrderedDict[tuple[str, str], _Waiting] = OrderedDict()
        self._waiting_bytes = 0
        self._in_hand: _Waiting | None = None  # None too when what was in hand is not to be written any more
        self._changed = Condition()
        self._writing = Lock()  # held while a prefix is on its way, so that a deletion comes before or after it
        self._closed = False
        self._failures_seen: set[type[Exception]] = set()
        self._thread = Thread(target=self._work, name="lam-indexer", daemon=True)
        self._thread.start()

    @property
    def nbytes(self) -> int:
        """Bytes charged for what is kept, as far as they are known."""
        return self._shelf.nbytes

    @property
    def waiting(self) -> int:
        """Prefixes that wait to be written."""
        return len(self._waiting)

    def put(self, salt: str, prefix: PrefixWindows) -> None:
        """Let a prefix wait, in place of those that it extends. One in which nothing could be found is not kept."""
        if not prefix.windows and not prefix.gaps:
            return
        nbytes = _nbytes(prefix)
        lost = 1
        with self._changed:
            if not self._closed and nbytes <= self._max_bytes:
                before = [self._drop((salt, digest)) for digest in (*prefix.earlier, prefix.digest)]
                lost = self._make_room(nbytes)
                self._waiting[salt, prefix.digest] = self._next(salt, prefix, nbytes, [each for each in before if each])
                self._waiting_bytes += nbytes
                self._changed.notify_all()
        if lost:
            self._on_error(lost)

    def get(self, salt: str, digest: str) -> PrefixIndex | None:
        """The index of the prefix, whether it still waits or is kept; None where it is neither.

        Raises:
            StoreError: the store cannot be read now.
            EncoderError: what waits has gaps, and the encoder failed.
        """
        with self._changed:
            waiting = self._waiting.get((salt, digest))
        if waiting is None:
            return self._shelf.get(salt, digest)
        return self._shelf.build(self._completer.complete(salt, waiting.prefix))

    def forget(self, salt: str) -> None:
        """Delete every index under this salt, those that wait too, and whatever else the store keeps under it.

        Raises:
            StoreError: the store cannot be written now. Nothing waits any more all the same.
        """
        with self._writing:
            with self._changed:
                for key in [key for key in self._waiting if key[0] == salt]:
                    self._drop(key)
                if self._in_hand is not None and self._in_hand.salt == salt:
                    self._in_hand = None
                self._changed.notify_all()
            self._shelf.forget(salt)

    def flush(self, seconds: float) -> bool:
        """Wait until nothing waits to be written; whether that came about in so many seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, seconds)

    def close(self) -> None:
        """Write what can be written within `CLOSE_SECONDS`, due or not, then let go of the store. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(CLOSE_SECONDS)
        with self._changed:
            lost = sum(self._drop(key) is not None for key in list(self._waiting))
        if lost:
            self._on_error(lost)
        self._shelf.close()

    def check_integrity(self) -> None:
        """Raise AssertionError unless what waits is what is charged, and within the cap."""
        with self._changed:
            held = sum(each.nbytes for each in self._waiting.values())
            assert held == self._waiting_bytes <= self._max_bytes

    def _next(self, salt: str, prefix: PrefixWindows, nbytes: int, before: list[_Waiting]) -> _Waiting:
        """What is to wait in place of these: it has waited as long as they have, and supersedes what they did."""
        now = time.monotonic()
        since = min((each.since for each in before), default=now)
        superseded = frozenset(
            [*prefix.earlier[-MOST_EARLIER:], *(name for each in before for name in each.superseded)]
        )
        superseded -= {prefix.digest}
        return _Waiting(salt, prefix, superseded, nbytes, since, min(now + self._quiet, since + self._longest))

    def _make_room(self, nbytes: int) -> int:
        """Drop what has waited longest until there is room; how many that cost. Called with the lock held."""
        lost = 0
        while self._waiting and self._waiting_bytes + nbytes > self._max_bytes:
            self._drop(next(iter(self._waiting)))
            lost += 1
        return lost

    def _drop(self, key: tuple[str, str]) -> _Waiting | None:
        found = self._waiting.pop(key, None)
        if found is not None:
            self._waiting_bytes -= found.nbytes
        return found

    def _work(self) -> None:
        """Write what is due, the first to be so first, until closed and empty."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                due = min(each.due for each in self._waiting.values())
                if not self._closed and due > time.monotonic():
                    self._changed.wait(due - time.monotonic())
                    continue
            self._write_next()

    def _write_next(self) -> None:
        with self._changed:
            if not self._waiting:  # a deletion came first
                return
            next_one = self._in_hand = min(self._waiting.values(), key=lambda each: each.due)
        prefix = self._completed(next_one)
        with self._writing:
            if self._in_hand is next_one:  # it may have been superseded: then it goes when its successor is written
                try:
                    self._shelf.put(next_one.salt, prefix, next_one.superseded)
                except Exception as error:  # noqa: BLE001 - whatever it is, the next one may be written
                    self._failed(error)
            with self._changed:  # only now: until then it is found here
                key = next_one.salt, prefix.digest
                if self._waiting.get(key) is next_one:
                    self._drop(key)
                self._changed.notify_all()

    def _completed(self, entry: _Waiting) -> PrefixWindows:
        """The prefix with its gaps embedded; without them where that fails, or there is no time for it."""

        def wanted() -> bool:
            return not self._closed and self._in_hand is entry

        try:
            return self._completer.complete(entry.salt, entry.prefix, wanted, background=True)
        except Exception as error:  # noqa: BLE001 - what was looked at can be found all the same
            self._failed(error)
            return entry.prefix.without_gaps()

    def _failed(self, error: Exception) -> None:
        """Count it, with one traceback per kind of failure."""
        seen = type(error) in self._failures_seen
        self._failures_seen.add(type(error))
        logger.log(logging.DEBUG if seen else logging.ERROR, "lam: an index is not written whole", exc_info=error)
        self._on_error(1)


def _nbytes(prefix: PrefixWindows) -> int:
    """Bytes that a prefix is charged for while it waits: it keeps the texts of its gaps alive."""
    gaps = sum(gap.end - gap.start for gap in prefix.gaps)
    return prefix.rows.nbytes + WINDOW_BYTES * (len(prefix.windows) + len(prefix.gaps)) + gaps
