"""Windows that wait for an encoder: requests take turns, and windows of like length share a batch."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from threading import Condition

from lam_vllm.encoders.memo import Kind
from lam_vllm.types import Embedding

LIKE = 2
"""Windows share a batch where neither is over so many times as long as the other: the rest would be padding."""


@dataclass(frozen=True, slots=True, order=True)
class Waiting:
    """A window that waits: shorter ones first, then in order of arrival."""

    length: int
    arrived: int
    text: str = field(compare=False)
    future: Future[Embedding] = field(compare=False)


@dataclass(slots=True)
class Group:
    """The waiting windows of one request. A canonical one goes alone, and first: its request is stuck without it."""

    fast: list[Waiting] = field(default_factory=list)
    canonical: deque[Waiting] = field(default_factory=deque)
    queued: bool = False


class FairQueue:
    """Requests in a ring; each gives one window a round. Nothing is refused, and nothing waits behind a whole request.

    A request that arrives is in the next batch with one window at least, unless more than a batch of requests waits.
    """

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._ring: deque[Group] = deque()
        self._numbers = count()
        self._changed = Condition()
        self._closed = False

    def put(self, group: Group, kind: Kind, windows: Iterable[tuple[str, Future[Embedding]]]) -> None:
        """Let these windows of a request wait.

        Raises:
            RuntimeError: the queue is closed.
        """
        with self._changed:
            if self._closed:
                raise RuntimeError("the encoder is closed")
            for text, future in windows:
                waiting = Waiting(len(text), next(self._numbers), text, future)
                if kind == "canonical":
                    group.canonical.append(waiting)
                else:
                    insort(group.fast, waiting)
            self._join(group)
            self._changed.notify_all()

    def take(self) -> tuple[Kind, list[Waiting]] | None:
        """The next batch, as soon as there is one; None when the queue was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._ring or self._closed)
            if self._closed:
                return None
            group = self._leave()
            if group.canonical:
                alone = group.canonical.popleft()
                self._join(group)
                return "canonical", [alone]
            leader = group.fast.pop()
            self._join(group)
            return "fast", [leader, *self._like(leader.length)]

    def close(self) -> list[Waiting]:
        """End every wait; returns the windows that nobody will take."""
        with self._changed:
            self._closed = True
            left = [waiting for group in self._ring for waiting in (*group.fast, *group.canonical)]
            self._ring.clear()
            self._changed.notify_all()
        return left

    def _like(self, length: int) -> list[Waiting]:
        """Windows like this one, one of a request a round, until the batch is full or a round brought none."""
        found: list[Waiting] = []
        room, fruitless = self._batch - 1, 0
        while room > len(found) and fruitless < len(self._ring):
            group = self._leave()
            place = bisect_left(group.fast, length / LIKE, key=lambda waiting: waiting.length)
            if place < len(group.fast) and group.fast[place].length <= length * LIKE:
                found.append(group.fast.pop(place))
                fruitless = 0
            else:
                fruitless += 1
            self._join(group)
        return found

    def _join(self, group: Group) -> None:
        """The group waits at the end of the ring, if it holds anything."""
        if not group.queued and (group.fast or group.canonical):
            group.queued = True
            self._ring.append(group)

    def _leave(self) -> Group:
        group = self._ring.popleft()
        group.queued = False
        return group
