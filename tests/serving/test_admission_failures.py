"""What fails, takes too long or is no longer waited for: the originals go through, and nobody is held up."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from lam_vllm.config import CompactorConfig
from lam_vllm.encoders.base import Encoder
from lam_vllm.errors import EncoderError
from lam_vllm.serving.limits import Limits
from tests.serving.admitted import REPEATED, run
from tests.serving.fakes import Server, agent_messages


class BrokenEncoder:
    """An encoder whose model fails, as one does when memory runs out."""

    fingerprint, name, dimension, window_tokens, threshold_cos = "broken", "broken", 2, 510, 0.95

    def __init__(self, error: Exception) -> None:
        self.error = error

    def token_offsets(self, text: str) -> list[tuple[int, int]]:
        return [(place, place + 1) for place in range(len(text))]

    def encode(self, text: str) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "reason"),
    [(EncoderError("no memory"), "encoder_error"), (ZeroDivisionError(), "internal_error")],
)
def test_a_failure_passes_the_originals_through_and_is_counted(error: Exception, reason: str) -> None:
    encoder: Encoder = BrokenEncoder(error)
    server = Server(config=CompactorConfig(profile="paper"), encoder=encoder)
    assert run(server, REPEATED) is REPEATED
    assert server.counted("failed_open", reason) == 1
    assert server.box.settled[0].outcome == "failed_open"


def test_a_damaged_memo_costs_one_retry_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    compactor = server.service.handler.compactors.here.get(server.config)
    expected = run(server, REPEATED)
    monkeypatch.setattr(compactor, "_memo", None)  # every use of it fails from here on
    with pytest.raises(AttributeError):
        compactor.compact(REPEATED)
    monkeypatch.undo()
    monkeypatch.setattr(compactor._memo, "take", lambda _digests: 1 / 0)
    assert run(server, REPEATED) == expected
    assert server.counted("failed_open", "internal_error") == 0


def test_a_request_past_the_time_limit_goes_through_as_it_came() -> None:
    release = threading.Event()
    server = Server(limits=Limits(time_limit_seconds=0.0))

    async def ask() -> Any:
        blocked = asyncio.create_task(server.service.pool.submit(lambda: release.wait(10)))
        await asyncio.sleep(0)
        plan = await server.service.admission.admit(object(), REPEATED)
        release.set()
        await blocked
        await server.service.admission.ended()
        return plan

    plan = asyncio.run(ask())
    assert (plan.messages, plan.outcome, plan.reason) == (REPEATED, "failed_open", "time_limit")


class BlockedEncoder(BrokenEncoder):
    """An encoder that is at work until it is released."""

    def __init__(self) -> None:
        super().__init__(EncoderError("released"))
        self.begun, self.release = threading.Event(), threading.Event()
        self.calls = 0

    def encode(self, text: str) -> Any:
        self.calls += 1
        self.begun.set()
        assert self.release.wait(10)
        raise self.error


def test_a_request_that_encodes_does_not_hold_up_one_that_never_does() -> None:
    encoder = BlockedEncoder()
    server = Server(encoder=encoder)

    async def ask() -> None:
        encoding = asyncio.create_task(server.ask(REPEATED, lam={"profile": "paper"}))
        await asyncio.to_thread(encoder.begun.wait, 10)
        async with asyncio.timeout(10):
            plan = await server.service.admission.admit(object(), REPEATED)
        assert plan.outcome == "changed"
        assert not encoding.done()
        assert server.registry.get_sample_value("lam:queue_depth") == 1
        encoder.release.set()
        await encoding

    try:
        asyncio.run(ask())
    finally:
        encoder.release.set()


@pytest.mark.parametrize(("seconds", "calls"), [(60.0, 2), (0.1, 1)])
def test_what_fails_is_tried_once_more_while_somebody_waits(seconds: float, calls: int) -> None:
    encoder = BlockedEncoder()
    server = Server(config=CompactorConfig(profile="paper"), encoder=encoder, limits=Limits(time_limit_seconds=seconds))

    async def ask() -> str:
        asking = asyncio.create_task(server.service.admission.admit(object(), REPEATED))
        await asyncio.to_thread(encoder.begun.wait, 10)
        if calls == 1:
            await asking
        encoder.release.set()
        plan = await asking
        await server.service.admission.ended()
        return plan.reason

    try:
        assert asyncio.run(ask()) == ("encoder_error" if calls == 2 else "time_limit")
    finally:
        encoder.release.set()
    assert encoder.calls == calls


def test_cancelling_a_request_cancels_the_hook() -> None:
    server = Server()

    async def ask() -> None:
        task = asyncio.create_task(server.ask(REPEATED))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(ask())


def test_what_nobody_waits_for_any_more_is_not_begun() -> None:
    server, release = Server(), threading.Event()

    async def leave() -> None:
        pool, admission = server.service.pool, server.service.admission
        blocked = asyncio.create_task(pool.submit(lambda: release.wait(10)))
        clients = [asyncio.create_task(admission.admit(SimpleNamespace(), agent_messages(str(n)))) for n in range(50)]
        await asyncio.sleep(0)
        while pool.waiting("exact") <= len(clients):
            await asyncio.sleep(0)
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        await asyncio.sleep(0)
        assert pool.waiting("exact") == 1
        release.set()
        await blocked
        await admission.ended()

    asyncio.run(leave())
    assert len(server.service.handler.watch) == 0
