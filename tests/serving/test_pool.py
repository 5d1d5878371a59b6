from __future__ import annotations

import asyncio
import functools
import threading
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from lam_vllm.metrics import Metrics
from lam_vllm.pool import Pool


def test_work_past_the_first_waits_in_order_and_the_loop_stays_free() -> None:
    registry = CollectorRegistry()
    pool = Pool(Metrics(registry).queue_depth)
    release = threading.Event()
    ended: list[int] = []

    async def run() -> None:
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(pool.submit(lambda: release.wait(10)))]
        tasks += [asyncio.create_task(pool.submit(functools.partial(ended.append, i))) for i in range(20)]
        await asyncio.sleep(0.01)
        assert registry.get_sample_value("lam:queue_depth") == 21
        assert ended == []
        release.set()
        await asyncio.gather(*tasks)

    asyncio.run(run())
    pool.close()
    assert ended == list(range(20))
    assert registry.get_sample_value("lam:queue_depth") == 0


def test_each_lane_goes_on_while_the_other_is_busy() -> None:
    pool = Pool(Metrics(CollectorRegistry()).queue_depth)
    release = threading.Event()

    async def run() -> None:
        for busy, free in (("encoder", "exact"), ("exact", "encoder"), ("exact", "store")):
            release.clear()
            blocked = asyncio.create_task(pool.submit(lambda: release.wait(10), busy))  # type: ignore[arg-type]
            await asyncio.sleep(0)
            assert await pool.submit(lambda: "done", free) == "done"  # type: ignore[arg-type]
            assert not blocked.done()
            release.set()
            assert await blocked

    asyncio.run(run())
    pool.close()


def test_work_runs_in_another_thread_and_its_error_reaches_the_caller() -> None:
    pool = Pool(Metrics(CollectorRegistry()).queue_depth)

    async def run() -> None:
        assert await pool.submit(threading.get_ident) != threading.get_ident()
        with pytest.raises(ValueError, match="no number"):
            await pool.submit(functools.partial(int, "no number"))

    asyncio.run(run())
    pool.close()
