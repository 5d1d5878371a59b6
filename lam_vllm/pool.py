"""Work off the event loop, one piece at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Depth(Protocol):
    """A gauge that goes up and down."""

    def inc(self) -> object:
        """One more."""

    def dec(self) -> object:
        """One less."""


class Pool:
    """One thread. Work past the first piece waits in order of arrival; it is never refused."""

    def __init__(self, depth: Depth) -> None:
        self._depth = depth
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lam-compactor")

    async def submit(self, work: Callable[[], T]) -> T:
        """What `work` returns. Cancelling the caller drops work that has not begun.

        Raises:
            Exception: whatever `work` raises.
        """
        self._depth.inc()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._depth.dec()

    def close(self) -> None:
        """Let the running piece end, drop the rest."""
        self._threads.shutdown(wait=True, cancel_futures=True)
