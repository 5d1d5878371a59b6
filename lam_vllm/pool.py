"""Work off the event loop, in two lanes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, Protocol, TypeVar

T = TypeVar("T")
Lane = Literal["exact", "encoder"]


class Depth(Protocol):
    """A gauge that goes up and down."""

    def inc(self) -> object:
        """One more."""

    def dec(self) -> object:
        """One less."""


THREADS: dict[Lane, int] = {"exact": 1, "encoder": 64}
"""Work of the first lane runs in this process, one piece at a time; that of the other waits for the worker process."""


class Pool:
    """Threads of each lane, so that work which never encodes does not wait for work which does.

    Within a lane, work past the number of its threads waits in order of arrival; it is never refused.
    """

    def __init__(self, depth: Depth) -> None:
        self._depth = depth
        self._threads = {
            lane: ThreadPoolExecutor(number, thread_name_prefix=f"lam-{lane}") for lane, number in THREADS.items()
        }

    async def submit(self, work: Callable[[], T], lane: Lane = "exact") -> T:
        """What `work` returns. Cancelling the caller drops work that has not begun.

        Raises:
            Exception: whatever `work` raises.
        """
        self._depth.inc()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads[lane], work)
        finally:
            self._depth.dec()

    def close(self) -> None:
        """Let running pieces end, drop the rest."""
        for threads in self._threads.values():
            threads.shutdown(wait=True, cancel_futures=True)
