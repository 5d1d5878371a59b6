"""Group H, F87 and F89: nobody waits for a compactor, and everything that is kept has a bound."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from lam_vllm import Compactor, make_config
from lam_vllm.compactors import MAX_COMPACTORS
from lam_vllm.config import CompactorConfig
from lam_vllm.encoders.base import Encoder
from lam_vllm.prefix_memo import PrefixMemo
from lam_vllm.records import open_records
from lam_vllm.serving.prefix_watch import PrefixWatch
from lam_vllm.serving.routes import make_router
from lam_vllm.stores import StoreSettings
from tests.serving.fakes import KEY, Server

from .agent import MODULE, OTHER, Make, agent
from .operations import REPEATED, BusyEncoder, ask


def test_f87_the_loop_answers_while_every_compactor_is_at_work() -> None:
    encoder = BusyEncoder()
    server = Server(config=CompactorConfig(profile="paper"), encoder=encoder)
    app = FastAPI()
    app.include_router(make_router())
    app.state.lam = server.service

    async def run() -> None:
        exact_is_busy = asyncio.create_task(server.service.pool.submit(encoder.wait))
        waiting = [asyncio.create_task(server.ask(agent(MODULE, f"{n}\n{OTHER}"))) for n in range(20)]
        waiting += [asyncio.create_task(server.ask(REPEATED, lam={"profile": "exact"})) for _ in range(20)]
        await asyncio.to_thread(encoder.begun.wait, 10)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server") as client:
            async with asyncio.timeout(20):
                answers = [await client.get("/v1/lam/status") for _ in range(5)]
        assert [answer.status_code for answer in answers] == [200] * 5
        assert not any(task.done() for task in waiting)
        assert server.registry.get_sample_value("lam:queue_depth") == 41
        encoder.release.set()
        await asyncio.gather(exact_is_busy, *waiting)

    try:
        asyncio.run(run())
    finally:
        encoder.release.set()
    assert encoder.threads
    assert threading.get_ident() not in encoder.threads
    assert server.registry.get_sample_value("lam:queue_depth") == 0


def test_f89_everything_that_is_kept_has_a_bound() -> None:
    server = Server()
    handler = server.service.handler
    handler.records = open_records(StoreSettings(None, 5_000, 604_800.0), KEY)
    handler.watch = PrefixWatch(max_messages=40)
    for number in range(3 * MAX_COMPACTORS):
        ask(server, agent(f"{number}\n{MODULE}", OTHER, f"{number}\n{MODULE}"), lam={"exclude_tools": [f"t{number}"]})
    handler.records.check_integrity()
    assert 0 < handler.records.bytes_used <= 5_000
    assert 0 < len(handler.watch) <= 40
    assert len(handler.compactors.here._by_config) == MAX_COMPACTORS


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_f89_a_store_that_outlives_the_process_keeps_to_its_bytes_and_loses_the_oldest_first(
    kind: str, tmp_path: Path, redis_url: str
) -> None:
    store = StoreSettings(redis_url if kind == "redis" else str(tmp_path / "rows.sqlite"), 5_000, 604_800.0)
    server = Server(store=store)
    texts = [f"{number}\n{MODULE}" for number in range(8)]
    identities = [server.service.handler.records.put("", text) for text in texts]
    server.service.close()  # what waits is written

    again = Server(store=store).service
    again.handler.records.check_integrity()
    kept = [again.handler.records.look_up("", identity) for identity in identities]
    assert all(one.known for one in kept)
    assert [one.text for one in kept] == [None] * 5 + texts[5:]
    assert again.metrics.store_cap_bytes.labels("records")._value.get() == 5_000
    again.close()


def test_f89_the_memo_of_prefixes_keeps_to_its_bytes_and_loses_the_oldest_first(
    make: Make, count_tokens: Callable[[str], int], remembering: Encoder
) -> None:
    config = make().config
    encoder = None if config.profile == "exact" else remembering
    one = Compactor(config, count_tokens, encoder)
    one.compact(REPEATED)
    compactor = Compactor(config, count_tokens, encoder, memo=PrefixMemo(int(3.5 * one.memo_bytes_used)))
    for salt in "abcde":
        compactor.compact(REPEATED, salt=salt)
        assert compactor.memo_bytes_used <= 3.5 * one.memo_bytes_used
    assert [compactor.compact(REPEATED, salt=salt).report.work.known_messages > 0 for salt in "edca"] == [
        True, True, True, False,
    ]  # fmt: skip


def test_f89_a_conversation_larger_than_the_memo_drives_nobody_elses_out(count_tokens: Callable[[str], int]) -> None:
    config = make_config({"profile": "exact"})
    small = Compactor(config, count_tokens)
    small.compact(REPEATED)
    compactor = Compactor(config, count_tokens, memo=PrefixMemo(2 * small.memo_bytes_used))
    compactor.compact(REPEATED)
    compactor.compact(agent(*(f"{number}\n{MODULE}" for number in range(20))))
    assert compactor.compact(REPEATED).report.work.known_messages == len(REPEATED)


def test_f89_a_conversation_larger_than_the_memo_is_compacted_and_not_kept(count_tokens: Callable[[str], int]) -> None:
    compactor = Compactor(make_config({"profile": "exact"}), count_tokens, memo=PrefixMemo(100))
    assert compactor.compact(REPEATED).changed
    assert compactor.memo_bytes_used == 0
