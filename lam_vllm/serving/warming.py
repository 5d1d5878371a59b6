"""Work done ahead of a request, while the model still decodes or another tool runs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from lam_vllm.config import CompactorConfig
from lam_vllm.pool import Pool
from lam_vllm.serving.accounting import Accounting
from lam_vllm.serving.tasks import Tasks
from lam_vllm.serving.work import Compactions
from lam_vllm.types import Message, Work
from lam_vllm.worker import WorkerCompactor

logger = logging.getLogger(__name__)


MOST_WARMING = 256
"""Calls under way at once. Past it a call is answered when there is room, also one that does not wait for its end."""


class Warmed(BaseModel):
    """What was made ready: windows looked at, those encoded for it, and those that were remembered already."""

    done: bool
    windows: int = 0
    encoded: int = 0
    remembered: int = 0
    seconds: float = 0.0


class Warming:
    """Fills the worker's memo of embeddings. It keeps nothing else, so a request that comes later counts as ever."""

    def __init__(self, compactors: Compactions, pool: Pool, accounting: Accounting) -> None:
        self._compactors = compactors
        self._pool = pool
        self._accounting = accounting
        self._room = asyncio.Semaphore(MOST_WARMING)
        self._tasks = Tasks()

    async def begin(
        self, config: CompactorConfig, messages: Sequence[Message] | None, text: str | None, salt: str
    ) -> asyncio.Task[Warmed]:
        """The work, which ends whether or not anybody waits for it. Exactly one of `messages` and `text` is given.

        Waits while `MOST_WARMING` are under way. The task raises what `WorkerCompactor.warm` raises.
        """
        await self._room.acquire()
        task = self._tasks.start(self._warm(config, messages, text, salt))
        task.add_done_callback(self._ended)
        return task

    async def _warm(
        self, config: CompactorConfig, messages: Sequence[Message] | None, text: str | None, salt: str
    ) -> Warmed:
        compactor = self._compactors.get(config)
        if not isinstance(compactor, WorkerCompactor):
            return Warmed(done=True)  # `exact` needs no embedding
        began = time.perf_counter()
        work: Work = await self._pool.submit(lambda: compactor.warm(messages, text, salt=salt), "background")
        self._accounting.encoded(work)
        seconds = time.perf_counter() - began
        encoded = work.encoder_calls + work.canonical_calls
        return Warmed(done=True, windows=work.new_windows, encoded=encoded, remembered=work.remembered, seconds=seconds)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._room.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("lam: warming failed: %s: %s", type(error).__name__, error)
