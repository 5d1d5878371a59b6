"""Windows that wait for an encoder: requests take turns, and windows of like length share a batch."""

from __future__ import annotations

from bisect import bisect_right, insort
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
AHEAD = 2
"""A request that holds no more windows than these goes first: an ordinary tool result is done in two batches."""
AHEAD_IN_A_ROW = 16
"""After so many batches led by requests that go first, another leads one: nothing waits for ever."""


@dataclass(frozen=True, slots=True, order=True)
class Waiting:
    """A window that waits: shorter ones first, then in order of arrival."""

    length: int
    arrived: int
    text: str = field(compare=False)
    future: Future[Embedding] = field(compare=False)


@dataclass(slots=True, eq=False)
class Group:
    """The waiting windows of one request. A canonical one goes alone, and first: its request is stuck without it.

    `ahead` windows may still go before those of other requests, if they are all that waits.
    """

    ahead: int = AHEAD
    fast: list[Waiting] = field(default_factory=list)
    canonical: deque[Waiting] = field(default_factory=deque)

    @property
    def goes_first(self) -> bool:
        """Whether that holds. Not for one that had its share before: many small steps make a large one."""
        return len(self.fast) + len(self.canonical) <= self.ahead

    def like(self, length: int) -> Waiting | None:
        """The longest window that is not over `length`, or the next longer one, out of the group; None: unlike."""
        above = bisect_right(self.fast, length, key=lambda waiting: waiting.length)
        for place in (above - 1, above):
            if 0 <= place < len(self.fast) and length / LIKE <= self.fast[place].length <= length * LIKE:
                return self.fast.pop(place)
        return None


class FairQueue:
    """Requests in a ring; each leads a batch in turn. Nothing is refused, and nothing waits behind a whole request.

    A small request that arrives leads the next batches, whatever larger ones wait, until it is done.
    """

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._ring: list[Group] = []
        self._ahead_in_a_row = 0
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
            if group not in self._ring and (group.fast or group.canonical):
                self._ring.append(group)
            self._changed.notify_all()

    def take(self) -> tuple[Kind, list[Waiting]] | None:
        """The next batch, as soon as there is one; None when the queue was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._ring or self._closed)
            if self._closed:
                return None
            group = self._leader()
            if group.canonical:
                alone = group.canonical.popleft()
                self._gave(group)
                return "canonical", [alone]
            leader = group.fast.pop()
            self._gave(group)
            return "fast", [leader, *self._like(leader.length)]

    def close(self) -> list[Waiting]:
        """End every wait; returns the windows that nobody will take."""
        with self._changed:
            self._closed = True
            left = [waiting for group in self._ring for waiting in (*group.fast, *group.canonical)]
            self._ring.clear()
            self._changed.notify_all()
        return left

    def _leader(self) -> Group:
        """The request whose turn it is: the first small one, else the one at the front."""
        small = next((group for group in self._ring if group.goes_first), None)
        other = next((group for group in self._ring if not group.goes_first), None)
        if small is None or other is None or self._ahead_in_a_row == AHEAD_IN_A_ROW:
            self._ahead_in_a_row = 0
            return other or self._ring[0]
        self._ahead_in_a_row += 1
        return small

    def _like(self, length: int) -> list[Waiting]:
        """Windows like this one, one of a request a round, until the batch is full or a round brought none.

        A request that has none like it keeps its place in the ring, so that it leads a batch all the sooner.
        """
        found: list[Waiting] = []
        room, before = self._batch - 1, -1
        while before < len(found) < room:
            before = len(found)
            for group in sorted(self._ring, key=lambda group: not group.goes_first):
                waiting = group.like(length) if len(found) < room else None
                if waiting is not None:
                    found.append(waiting)
                    self._gave(group)
        return found

    def _gave(self, group: Group) -> None:
        """A window of the group was taken: it goes to the end, unless it goes first anyway, or holds nothing."""
        group.ahead = max(0, group.ahead - 1)
        if group.goes_first and (group.fast or group.canonical):
            return
        self._ring.remove(group)
        if group.fast or group.canonical:
            self._ring.append(group)
