"""The server's side of a real worker: warming, clients that go away, audits, and a worker that is no more."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from lam_vllm.config import make_config
from lam_vllm.errors import WorkerLostError
from lam_vllm.serving.limits import Limits
from lam_vllm.types import Message, Report
from lam_vllm.worker.jobs import Answer, Compact
from tests.serving.fakes import Server, with_client
from tests.worker.conftest import THREADS, CountedClient, report

PAPER = make_config({"profile": "paper"})


def results(first: int, second: int) -> list[Message]:
    """A conversation with two results, of one window each; `paper` replaces the second."""
    return [
        {"role": "user", "content": "go"},
        {"role": "tool", "content": report(first)},
        {"role": "tool", "content": report(second)},
    ]


@pytest.fixture
def server(worker: CountedClient) -> Server:
    return Server(config=PAPER, client=worker)


def asked(server: Server, messages: list[Message], salt: str) -> Report:
    """The report of a request that was changed."""
    asyncio.run(server.ask(messages, cache_salt=salt))
    (settled,) = server.box.settled
    assert settled.outcome == "changed"
    assert settled.report is not None
    return settled.report


def all_warmed(server: Server, salt: str, *bodies: dict[str, Any]) -> list[dict[str, Any]]:
    """What the route answers to a client that waits for one after the other."""
    answers: list[dict[str, Any]] = []

    async def use(client: httpx.AsyncClient) -> None:
        for body in bodies:
            answer = await client.post("/warm", json={**body, "cache_salt": salt, "wait": True})
            assert answer.status_code == 200, answer.text
            answers.append(answer.json())

    with_client(server, use)
    return answers


def warmed(server: Server, salt: str, **body: Any) -> dict[str, Any]:
    """What the route answers to a client that waits."""
    return all_warmed(server, salt, body)[0]


def windows(server: Server) -> dict[str, float]:
    return server.service.metrics.counts("encoder_windows")


def test_a_request_finds_what_was_warmed_and_counts_its_removals_as_ever(server: Server) -> None:
    messages = results(1, 2)
    cold = asked(server, messages, "never warmed")
    assert cold.work.encoder_calls == 2
    before = windows(server), server.service.metrics.counts("tokens_removed")

    answer = warmed(server, "warmed", messages=messages)
    assert answer.pop("seconds") > 0
    assert answer == {"done": True, "windows": 2, "encoded": 2, "remembered": 0}
    assert windows(server)["fast"] == before[0]["fast"] + 2
    assert server.service.metrics.counts("tokens_removed") == before[1]
    assert server.counted("changed", "none") == 1

    warm = asked(server, messages, "warmed")
    assert (warm.work.encoder_calls, warm.work.canonical_calls, warm.work.remembered) == (0, 0, 2)
    assert warm.work.known_messages == 0
    assert warm.new_removed_tokens == cold.new_removed_tokens
    assert warm.new_removed_tokens["l1"] > 0
    assert windows(server)["fast"] == before[0]["fast"] + 2


def test_one_result_is_warmed_before_its_conversation_is_known(server: Server) -> None:
    messages = results(3, 4)
    texts = [messages[place]["content"] for place in (1, 2, 1)]
    answers = all_warmed(server, "texts", *[{"text": text} for text in texts])
    assert [(answer["encoded"], answer["remembered"]) for answer in answers] == [(1, 0), (1, 0), (0, 1)]
    assert asked(server, messages, "texts").work.encoder_calls == 0


def test_nothing_that_was_warmed_crosses_from_one_salt_to_another(server: Server) -> None:
    messages = results(5, 6)
    assert warmed(server, "mine", messages=messages)["encoded"] == 2
    assert asked(server, messages, "yours").work.remembered == 0


@contextmanager
def stopped(worker: CountedClient) -> Iterator[None]:
    """The worker takes no job while inside."""
    os.kill(worker.facts.process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker.facts.process, signal.SIGCONT)


def test_a_client_that_does_not_wait_is_answered_before_the_work_is_done(server: Server, worker: CountedClient) -> None:
    messages = results(7, 8)

    async def use(client: httpx.AsyncClient) -> None:
        with stopped(worker):
            answer = await client.post("/warm", json={"messages": messages, "cache_salt": "later"})
        assert (answer.status_code, answer.json()["done"]) == (202, False)
        async with asyncio.timeout(60):
            while windows(server)["fast"] < 2:
                await asyncio.sleep(0.01)
        await server.ask(messages, cache_salt="later")

    with_client(server, use)
    assert windows(server) == {"fast": 2, "canonical": 0, "memo": 2}


def test_what_a_client_that_went_away_had_asked_for_ends_in_the_memo_and_nothing_leaks(
    server: Server, worker: CountedClient
) -> None:
    messages = results(9, 10)

    async def leave() -> None:
        worker.forget_sent()
        with stopped(worker):
            request = asyncio.create_task(server.renderer.preprocess_chat(SimpleNamespace(cache_salt="gone"), messages))
            await asyncio.to_thread(worker.wait_until_sent, 1)
            request.cancel()
            assert isinstance((await asyncio.gather(request, return_exceptions=True))[0], asyncio.CancelledError)
            assert server.registry.get_sample_value("lam:queue_depth") == 1
        await server.service.admission.ended()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(leave())
    assert server.registry.get_sample_value("lam:queue_depth") == 0
    assert server.renderer.rendered == []
    assert server.counted("changed", "none") == 0
    assert asked(server, messages, "gone").work.known_messages == len(messages)


def test_a_request_past_the_time_limit_goes_through_and_its_work_serves_the_next(
    server: Server, worker: CountedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = results(11, 12)
    with monkeypatch.context() as patch, stopped(worker):
        short = replace(server.service.settings, limits=Limits(time_limit_seconds=0.05))
        patch.setattr(server.service.admission, "_settings", short)

        async def ask() -> None:
            rendered = await server.renderer.preprocess_chat(SimpleNamespace(cache_salt="late"), messages)
            assert server.renderer.rendered[-1] is messages
            assert rendered
            os.kill(worker.facts.process, signal.SIGCONT)
            await server.service.admission.ended()

        asyncio.run(ask())
    assert server.counted("failed_open", "time_limit") == 1
    assert asked(server, messages, "late").work.known_messages == len(messages)
    assert server.service.metrics.counts("prefix_breaks")["failed_open"] == 1


def test_an_audit_decides_again_by_canonical_embeddings_and_finds_nothing(worker: CountedClient) -> None:
    server = Server(config=PAPER, client=worker, audit_rate=1.0)
    worker.forget_sent()
    asked(server, results(13, 14), "audited")
    worker.wait_until_sent(2)
    assert server.service.metrics.counts("guard_band_violations") == {"": 0.0}
    assert server.service.metrics.counts("prefix_breaks")["defect"] == 0


def test_status_tells_of_the_worker(server: Server, worker: CountedClient) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        encoder = (await client.get("/status")).json()["encoder"]
        assert encoder["process"] == worker.facts.process
        assert (encoder["threads"], encoder["restarts"]) == (THREADS, worker.restarts)
        assert encoder["fast_pass"] == worker.facts.fast.way.label

    with_client(server, use)


def test_the_worker_ends_with_the_server_and_who_still_waits_is_told(server: Server, worker: CountedClient) -> None:
    app, process = server.app(), Path(f"/proc/{worker.facts.process}")

    async def serve() -> Future[Answer]:
        async with app.router.lifespan_context(app):
            os.kill(worker.facts.process, signal.SIGSTOP)
            return worker.submit(Compact(PAPER, results(15, 16), ""))

    assert isinstance(asyncio.run(serve()).exception(60), WorkerLostError)
    assert not process.exists()


def test_without_its_worker_a_server_hands_requests_on_as_they_came(
    server: Server, worker: CountedClient, caplog: pytest.LogCaptureFixture
) -> None:
    worker.close()  # the last two tests of the folder end it for good
    messages = results(15, 16)
    assert asyncio.run(server.ask(messages)) is messages
    assert server.counted("failed_open", "worker_lost") == 1
    assert asyncio.run(server.ask(messages, lam={"profile": "exact"})) is messages
    assert server.counted("unchanged", "no_repeat") == 1

    async def use(client: httpx.AsyncClient) -> None:
        answer = await client.post("/warm", json={"messages": messages, "wait": True})
        assert (answer.status_code, "worker process" in answer.text) == (503, True)
        assert (await client.post("/warm", json={"messages": messages})).status_code == 202
        async with asyncio.timeout(60):  # this failure reaches nobody but the log
            while sum("warming failed: WorkerLostError" in message for message in caplog.messages) < 2:
                await asyncio.sleep(0.01)

    with_client(server, use)
