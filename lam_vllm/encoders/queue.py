"""Windows that wait for an encoder: requests take turns, and windows of like length share a batch."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from threading import Condition

from lam_vllm.encoders.memo import Answer, Kind
from lam_vllm.types import Embedding

LIKE = 2
"""Windows share a batch where neither is over so many times as long as the other: the rest would be padding."""
AHEAD_CHARACTERS = 4_000
"""A request that holds no more text than this goes first: an ordinary tool result, of two windows or a few parts."""
AHEAD_IN_A_ROW = 16
"""After so many batches led by requests that go first, another leads one: nothing waits for ever."""


@dataclass(frozen=True, slots=True, order=True)
class Waiting:
    """A window that waits: shorter ones first, then in order of arrival.

    Two requests may wait for one future, each in its own place; whichever comes first has it encoded.
    """

    length: int
    arrived: int
    text: str = field(compare=False)
    future: Future[Embedding] = field(compare=False)

    def begin(self) -> bool:
        """Whether nobody has begun with it; its future is running from here on."""
        return not (self.future.running() or self.future.done()) and self.future.set_running_or_notify_cancel()


@dataclass(slots=True, eq=False)
class Group:
    """The waiting windows of one request. A canonical one goes alone, and first: its request is stuck without it.

    `ahead` characters may still go before other requests, if they are all that waits; `held` is what waits. What is in
    the `background` has a turn only where no request waits, however long that is.
    """

    ahead: int = AHEAD_CHARACTERS
    background: bool = False
    fast: list[Waiting] = field(default_factory=list)
    canonical: deque[Waiting] = field(default_factory=deque)
    held: int = 0

    @property
    def goes_first(self) -> bool:
        """Whether it is small. False for one that had its share before: many small steps make a large one."""
        return self.held <= self.ahead

    def add(self, kind: Kind, waiting: Waiting) -> None:
        """Let a window wait."""
        self.held += waiting.length
        if kind == "canonical":
            self.canonical.append(waiting)
        else:
            insort(self.fast, waiting)

    def next(self, kind: Kind) -> Waiting | None:
        """The next window of a kind, out of the group: the longest fast one; None where there is none."""
        queue = self.canonical if kind == "canonical" else self.fast
        while queue:
            waiting = self.canonical.popleft() if kind == "canonical" else self.fast.pop()
            self.held -= waiting.length
            if waiting.begin():
                self.ahead = max(0, self.ahead - waiting.length)
                return waiting
        return None

    def like(self, length: int) -> Waiting | None:
        """The longest fast window that is not over `length`, or the next longer one, out of the group; None: unlike."""
        while True:
            above = bisect_right(self.fast, length, key=lambda waiting: waiting.length)
            alike = (
                place
                for place in (above - 1, above)
                if 0 <= place < len(self.fast) and length / LIKE <= self.fast[place].length <= length * LIKE
            )
            place = next(alike, None)
            if place is None:
                return None
            waiting = self.fast.pop(place)
            self.held -= waiting.length
            if waiting.begin():
                self.ahead = max(0, self.ahead - waiting.length)
                return waiting


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
                group.add(kind, Waiting(len(text), next(self._numbers), text, future))
            if group not in self._ring and (group.fast or group.canonical):
                self._ring.append(group)
            self._changed.notify_all()

    def take(self) -> tuple[Kind, list[Waiting]] | None:
        """The next batch, as soon as there is one, its futures running; None when the queue was closed."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._ring or self._closed)
                if self._closed:
                    return None
                kind, batch = self._next_batch(self._leader())
                if batch:
                    return kind, batch

    def fulfil(self, future: Future[Embedding], embedding: Embedding) -> bool:
        """Set the result, unless the future has one: whether this is it."""
        with self._changed:  # nobody begins with it, or fulfils it, between the question and the answer
            first = not future.done()
            if first:
                future.set_result(embedding)
        return first

    def spare(self, answer: Answer, embedding: Embedding) -> None:
        """Set a result that was found instead of worked for, unless there is one; `answer` says what that spared."""
        with self._changed:
            answer.spared = not (answer.running() or answer.done())
            self.fulfil(answer, embedding)

    def fail(self, futures: Iterable[Future[Embedding]], error: BaseException) -> None:
        """Set the exception of each future that has no result by now."""
        with self._changed:
            for future in futures:
                if not future.done():
                    future.set_exception(error)

    def drain(self) -> list[Waiting]:
        """Every window that waits, out of the queue: nobody is going to encode them."""
        with self._changed:
            left = [waiting for group in self._ring for waiting in (*group.fast, *group.canonical) if waiting.begin()]
            for group in self._ring:
                group.fast.clear()
                group.canonical.clear()
                group.held = 0
            self._ring.clear()
        return left

    def close(self) -> list[Waiting]:
        """End every wait; returns the windows that nobody will take."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        return self.drain()

    def _next_batch(self, group: Group) -> tuple[Kind, list[Waiting]]:
        alone = group.next("canonical")
        if alone is not None:
            self._gave(group)
            return "canonical", [alone]
        small = group.goes_first
        leader = group.next("fast")
        batch = [] if leader is None else [leader]
        while small and batch and len(batch) < self._batch and (other := group.next("fast")) is not None:
            batch.append(other)  # whatever its length: a small request is done at once
        self._gave(group)
        if not batch:
            return "fast", batch
        return "fast", batch + self._like(batch[0].length, self._batch - len(batch), background=group.background)

    def _leader(self) -> Group:
        """The request whose turn it is: the first small one, else the one at the front."""
        waiting = [group for group in self._ring if not group.background] or self._ring
        small = next((group for group in waiting if group.goes_first), None)
        other = next((group for group in waiting if not group.goes_first), None)
        if small is None or other is None or self._ahead_in_a_row == AHEAD_IN_A_ROW:
            self._ahead_in_a_row = 0
            return other or waiting[0]
        self._ahead_in_a_row += 1
        return small

    def _like(self, length: int, room: int, *, background: bool) -> list[Waiting]:
        """Windows like this one, one of a request a round, until the room is filled or a round brought none.

        What is in the background fills no batch of a request, which would take longer. A request that has none like it
        keeps its place in the ring, so that it leads a batch all the sooner.
        """
        found: list[Waiting] = []
        before = -1
        while before < len(found) < room:
            before = len(found)
            groups = [group for group in self._ring if background or not group.background]
            for group in sorted(groups, key=lambda group: not group.goes_first):
                waiting = group.like(length) if len(found) < room else None
                if waiting is not None:
                    found.append(waiting)
                    self._gave(group)
        return found

    def _gave(self, group: Group) -> None:
        """A window of the group was taken: it goes to the end, unless it goes first anyway, or holds nothing."""
        holds = bool(group.fast or group.canonical)
        if group.goes_first and holds:
            return
        self._ring.remove(group)
        if holds:
            self._ring.append(group)
