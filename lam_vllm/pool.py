"""Work off the event loop, in lanes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Literal, Protocol, TypeVar

T = TypeVar("T")
Lane = Literal["exact", "encoder", "background", "store"]


class Depth(Protocol):
    """A gauge that goes up and down."""

    def inc(self) -> object:
        """One more."""

    def dec(self) -> object:
        """One less."""


THREADS: dict[Lane, int] = {"exact": 1, "encoder": 64, "background": 16, "store": 8}
"""Work of the first lane runs in this process, one piece at a time. That of the next two waits for the worker process:
requests in one, and in the other what no request waits for, so that it never keeps one from its turn. That of the last
waits for the store: look-ups and deletions."""


class Piece(Generic[T]):
    """Work that says whether it has begun, and is told when nobody waits for it any more."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.begun = False
        self.wanted = True
        self._work = work

    def __call__(self) -> T:
        """Do it."""
        self.begun = True
        return self._work()


class Pool:
    """Threads of each lane, so that work of one does not wait for work of another.

    Within a lane, work past the number of its threads waits in order of arrival; it is never refused.
    """

    def __init__(self, depth: Depth) -> None:
        self._depth = depth
        self._pieces = dict.fromkeys(THREADS, 0)
        self._threads = {
            lane: ThreadPoolExecutor(number, thread_name_prefix=f"lam-{lane}") for lane, number in THREADS.items()
        }

    def waiting(self, lane: Lane) -> int:
        """Pieces of this lane that have not ended."""
        return self._pieces[lane]

    async def submit(self, work: Callable[[], T], lane: Lane = "exact") -> T:
        """What `work` returns, for the event loop alone. Cancelling the caller drops work that has not begun.

        Raises:
            Exception: whatever `work` raises.
        """
        self._depth.inc()
        self._pieces[lane] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads[lane], work)
        finally:
            self._pieces[lane] -= 1
            self._depth.dec()

    def close(self) -> None:
        """Let running pieces end, drop the rest."""
        for threads in self._threads.values():
            threads.shutdown(wait=True, cancel_futures=True)
