"""The worker process does what a compactor in this process does, and its end costs no request."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from lam_vllm.compactor import Compactor
from lam_vllm.compactors import Compactors
from lam_vllm.config import CompactorConfig, make_config
from lam_vllm.encoders.base import Encoder
from lam_vllm.errors import EncoderError, WorkerLostError
from lam_vllm.records import open_records
from lam_vllm.serving.options import Options
from lam_vllm.serving.prefix_watch import PrefixWatch
from lam_vllm.serving.work import Compactions, Handler, Plan
from lam_vllm.stores import StoreSettings
from lam_vllm.tokens import portable_token_counter
from lam_vllm.types import Compaction, Message
from lam_vllm.worker import Setup, WorkerClient, WorkerCompactor
from lam_vllm.worker import client as client_module
from lam_vllm.worker.client import LONGEST_PAUSE_SECONDS, STUCK_SECONDS, restart_pauses
from lam_vllm.worker.jobs import Compact, Warm
from tests.core.chats import OneShot, chats
from tests.worker.conftest import THREADS, TOKENIZER, CountedClient, report

ROOT = Path(__file__).parents[2]
CONFIGS = [make_config({"profile": profile}) for profile in ("guarded", "paper")]
REQUESTS = 16
NEAR_REPEAT: list[Message] = [{"role": "tool", "content": report(seconds)} for seconds in (41, 43)]
"""Two results of one window each; `paper` replaces the second."""


@pytest.fixture(scope="module")
def alone(encoder: Encoder) -> Callable[..., Compaction]:
    """A compaction in this process: canonical embeddings alone, and no memo of prefixes."""
    compactors = {config: Compactor(config, portable_token_counter(TOKENIZER), encoder) for config in CONFIGS}
    return lambda config, messages: compactors[config].compact(messages, use_memo=False)


def by_user(user: int, messages: list[Message]) -> list[Message]:
    """The conversation of one of several users, who get the same tool output."""
    return [{"role": "user", "content": f"I am user {user}."}, *messages]


def tries() -> Iterator[None]:
    """Again and again for a minute, which is more than anything here takes; then the test fails."""
    for _ in range(1_200):
        yield
        time.sleep(0.05)
    pytest.fail("it did not come about")


def process_status(process: int | str, task: int | str = "") -> dict[str, str]:
    """What Linux says of a process, or of one of its threads."""
    path = Path(f"/proc/{process}/task/{task}/status" if task else f"/proc/{process}/status")
    pairs = (line.partition(":") for line in path.read_text().splitlines())
    return {name: value.strip() for name, _, value in pairs}


def tasks(process: int) -> list[str]:
    return os.listdir(f"/proc/{process}/task")  # noqa: PTH208 - names alone


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: str(config.profile))
def test_the_worker_makes_the_bytes_of_a_compactor_in_this_process(
    config: CompactorConfig, worker: WorkerClient, conversation: list[Message], alone: Callable[..., Compaction]
) -> None:
    compactor, expected = WorkerCompactor(config, worker), alone(config, conversation)
    for end in range(2, len(conversation), 5):
        compactor.compact(conversation[:end], salt="grows")
    for options in ({}, {"use_memo": False}, {"canonical": True}):
        found = compactor.compact(conversation, salt="grows", **options)
        assert found.messages == expected.messages
        assert found.decisions == expected.decisions
        assert found.report.prefix_digest != ""
    assert expected.changed


def test_requests_at_the_same_time_get_what_each_gets_alone(
    worker: WorkerClient, conversation: list[Message], alone: Callable[..., Compaction]
) -> None:
    asked = [(CONFIGS[user % 2], by_user(user, conversation[: 12 + user])) for user in range(REQUESTS)]
    with ThreadPoolExecutor(REQUESTS) as threads:
        found = list(threads.map(lambda each: WorkerCompactor(each[0], worker).compact(each[1]), asked))
    for (config, messages), compaction in zip(asked[-4:], found[-4:], strict=True):
        assert compaction.messages == alone(config, messages).messages
    encoded = sum(compaction.report.work.encoder_calls for compaction in found)
    assert encoded <= 2 * max(compaction.report.work.new_windows for compaction in found)
    assert sum(compaction.report.work.new_windows for compaction in found) > 4 * encoded


@given(chat=chats())
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_whatever_a_chat_holds_travels_and_comes_back_the_same_object(
    chat: list[dict[str, Any]], worker: WorkerClient, alone: Callable[..., Compaction]
) -> None:
    config = CONFIGS[0]
    found, expected = WorkerCompactor(config, worker).compact(chat), alone(config, chat)
    assert found.messages == expected.messages
    assert all(new is old or new != old for old, new in zip(chat, found.messages, strict=True))
    contents = [message["content"] for message in chat]
    assert not any(content.read for content in contents if isinstance(content, OneShot))


def test_surrogates_and_objects_of_the_server_travel(worker: WorkerClient, alone: Callable[..., Compaction]) -> None:
    text = "\n".join(f"line {n} \ud800 of a listing that comes again" for n in range(30))
    calls = SimpleNamespace(id="call_0")  # as validation leaves them behind
    chat: list[Message] = [
        {"role": "user", "content": "go \udfff"},
        {"role": "assistant", "content": None, "tool_calls": (call for call in [calls])},
        {"role": "tool", "content": text, "object": calls},
        {"role": "tool", "content": [{"type": "text", "text": text, "object": calls}, {1: calls}, calls]},
    ]
    found, expected = WorkerCompactor(CONFIGS[0], worker).compact(chat), alone(CONFIGS[0], chat)
    assert found.messages == expected.messages
    assert found.changed
    assert next(chat[1]["tool_calls"]) is calls


def test_an_answer_is_an_error_where_the_work_failed_and_the_next_job_works(worker: WorkerClient) -> None:
    messages: list[Message] = [{"role": "tool", "content": "text"}]
    bad: Any = [{"role": "tool", "content": "text"}, "not a message"]
    with pytest.raises(RuntimeError, match="AttributeError"):
        worker.submit(Compact(CONFIGS[0], bad, "")).result()
    assert WorkerCompactor(CONFIGS[0], worker).compact(messages).messages == messages


@pytest.fixture
def stopped(worker: CountedClient) -> Iterator[CountedClient]:
    """The worker while it takes no job."""
    process = worker.facts.process
    os.kill(process, signal.SIGSTOP)
    try:
        yield worker
    finally:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


def test_a_worker_that_was_idle_for_long_has_its_whole_time_for_the_next_job(stopped: CountedClient) -> None:
    worker, long_ago = stopped, time.monotonic() - 10 * STUCK_SECONDS
    assert not worker._stands_still(long_ago)
    answer = worker.submit(Warm(CONFIGS[0], None, "a text that nobody has sent so far", "idle"))
    assert not worker._stands_still(long_ago)
    os.kill(worker.facts.process, signal.SIGCONT)
    assert answer.result(60)


def test_requests_over_which_the_worker_is_killed_are_computed_by_the_next_worker(
    stopped: CountedClient, alone: Callable[..., Compaction]
) -> None:
    worker, process, restarts = stopped, stopped.facts.process, stopped.restarts
    handler = Handler(
        Compactions(Compactors(len), worker),
        PrefixWatch(),
        open_records(StoreSettings(None, 1_000_000, 1_000.0), bytes(32)),
    )
    jobs = [Compact(CONFIGS[1], NEAR_REPEAT, "") for _ in range(4)]

    def run(user: int) -> Plan:
        return handler.run(Options("on", CONFIGS[1], store=True), by_user(user, NEAR_REPEAT), "")

    with ThreadPoolExecutor(REQUESTS) as threads:
        worker.forget_sent()
        lost = [worker.submit(job) for job in jobs]
        plans = [threads.submit(run, user) for user in range(REQUESTS)]
        worker.wait_until_sent(len(jobs) + REQUESTS)
        os.kill(process, signal.SIGKILL)
        assert {type(future.exception(60)) for future in lost} == {WorkerLostError}
        found = [plan.result() for plan in plans]
    assert {(plan.outcome, plan.reason) for plan in found} == {("changed", "none")}
    for user in (0, REQUESTS - 1):
        assert found[user].messages == alone(CONFIGS[1], by_user(user, NEAR_REPEAT)).messages
    assert worker.restarts == restarts + 1
    assert worker.facts.process != process
    assert run(REQUESTS).outcome == "changed"


def test_a_worker_that_does_not_start_again_fails_requests_at_once_until_it_does(
    worker: WorkerClient,
    minilm_profile: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(client_module, "FIRST_PAUSE_SECONDS", 0.01)
    profile, restarts = minilm_profile.read_text(), worker.restarts
    job = Compact(CONFIGS[0], [{"role": "tool", "content": "text"}], "")
    try:
        minilm_profile.unlink()
        os.kill(worker.facts.process, signal.SIGKILL)
        for _ in range(3):  # the first may wait for the first start, none for any later one
            with pytest.raises(WorkerLostError):
                worker.submit(job).result()
        for _ in tries():
            with pytest.raises(WorkerLostError, match="is not running"):
                worker.submit(job).result()
            if sum("does not start" in message for message in caplog.messages) >= 2:
                break
        assert str(minilm_profile) in caplog.text
    finally:
        minilm_profile.write_text(profile)
    for _ in tries():
        if not isinstance(worker.submit(job).exception(60), WorkerLostError):
            break
    assert worker.submit(job).exception(60) is None
    assert worker.restarts == restarts + 1  # one loss, however many starts it took


def test_pauses_between_starts_grow_to_a_limit() -> None:
    pauses = list(itertools.islice(restart_pauses(), 9))
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert pauses[-2:] == [LONGEST_PAUSE_SECONDS] * 2


def test_an_encoder_that_cannot_be_loaded_is_named_and_leaves_no_process() -> None:
    before = children()
    with pytest.raises(EncoderError, match="'/no/such/model'"):
        WorkerClient(Setup("/no/such/model", TOKENIZER, "smollm2"))
    assert children() == before


PARENT = """
import json, os, sys, time
from pathlib import Path
from lam_vllm.config import make_config
from lam_vllm.worker import Setup, WorkerClient, WorkerCompactor

name, cpu, tokenizer = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]).read_text()
client = WorkerClient(Setup(name, tokenizer, "smollm2", 1, frozenset({cpu})))
tasks = lambda: len(os.listdir(f"/proc/{client.facts.process}/task"))
idle, compactor = tasks(), WorkerCompactor(make_config({"profile": "paper"}), client)
compactor.compact([{"role": "tool", "content": "some words of a result\\n" * 300}])
print(json.dumps({"process": client.facts.process, "idle": idle, "after": tasks()}), flush=True)
time.sleep(600)
"""


def test_threads_and_cores_are_those_that_were_asked_for_and_the_worker_ends_with_its_parent(
    worker: CountedClient, minilm_profile: Path
) -> None:
    cpu = max(os.sched_getaffinity(0))
    tokenizer = str(ROOT / ".models/smollm2/tokenizer.json")
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(minilm_profile), str(cpu), tokenizer],
        stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert parent.stdout is not None
    try:
        said = json.loads(parent.stdout.readline())
        process = said["process"]
        allowed = {process_status(process, task)["Cpus_allowed_list"] for task in tasks(process)}
        assert allowed == {str(cpu)}
        assert worker.threads_at_start == said["idle"] + THREADS - 1
        assert said["after"] == said["idle"] + 1  # the thread in which requests wait; no library started its own
        variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
        assert {b"OMP_NUM_THREADS=1", b"MKL_NUM_THREADS=1", b"OPENBLAS_NUM_THREADS=1"} <= set(variables)
    finally:
        parent.kill()
        parent.communicate()
    wait_until_gone(process)


def children() -> set[str]:
    """Ids of the processes that this one has started and not yet waited for."""
    return {
        name for task in tasks(os.getpid()) for name in Path(f"/proc/self/task/{task}/children").read_text().split()
    }


def wait_until_gone(process: int) -> None:
    """Return when no such process runs; one that nobody waits for may still be listed as dead."""
    for _ in tries():
        try:
            if process_status(process)["State"].startswith("Z"):
                return
        except FileNotFoundError:
            return
