"""The indexes of a worker: what a compaction leaves is found by meaning, by its tenant alone, and outlives it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lam_vllm.config import make_config
from lam_vllm.encoders.base import BatchEncoder
from lam_vllm.index import Found
from lam_vllm.stores import StoreError, StoreSettings
from lam_vllm.stores.base import ROW_BYTES
from lam_vllm.stores.sqlite import SqliteRows
from lam_vllm.types import Message
from lam_vllm.worker import Setup, WorkerClient, WorkerCompactor
from lam_vllm.worker.jobs import Forget, Forgotten
from tests.conftest import measured_before
from tests.stores.conftest import Errors, tries
from tests.worker.conftest import TOKENIZER, CountedClient, report

KEY = b"k" * 32
PAPER = make_config({"profile": "paper"})
RECIPE = "Melt the butter, stir in flour and milk, and let the sauce simmer until it is thick. Season with nutmeg."
TALK: list[Message] = [
    {"role": "user", "content": "go"},
    {"role": "tool", "content": report(41)},
    {"role": "tool", "content": [{"type": "text", "text": "- "}, {"type": "text", "text": RECIPE}]},
    {"role": "tool", "content": report(43)},
]
QUERY = "how to cook a white sauce"

Start = Callable[..., WorkerClient]


@pytest.fixture
def start(encoder: BatchEncoder, minilm_profile: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts workers over a file, which are ended with the test."""
    started: list[WorkerClient] = []

    def start(store: Path, **options: object) -> WorkerClient:
        settings = StoreSettings(str(store), 10_000_000, 1_000.0)
        setup = Setup(str(minilm_profile), TOKENIZER, "smollm2", store=settings, key=KEY)
        started.append(WorkerClient(setup, **options))  # type: ignore[arg-type]
        return started[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(measured_before(encoder, tmp_path / "cache")))
        yield start
        for client in started:
            client.close()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "lam" / "store.sqlite"


def indexed(client: WorkerClient, salt: str = "", *, index: bool = True) -> str:
    """The digest of the talk, compacted under the salt."""
    compaction = WorkerCompactor(PAPER, client, index=index).compact(TALK, salt=salt)
    assert compaction.changed
    return compaction.report.prefix_digest


def by_digest(client: WorkerClient, digest: str, salt: str = "") -> Found | None:
    return WorkerCompactor(PAPER, client).search(None, digest, QUERY, 3, salt=salt)


def by_messages(client: WorkerClient, salt: str = "") -> Found:
    found = WorkerCompactor(PAPER, client).search(TALK, None, QUERY, 3, salt=salt)
    assert found is not None
    return found


def kept(path: Path) -> int:
    """Bytes of indexes in the file."""
    rows = SqliteRows(path, "index", 10_000_000, 1_000.0)
    rows.refresh()
    rows.close()
    return rows.nbytes


def test_a_window_is_found_by_meaning_by_its_messages_and_by_the_digest_of_the_report(worker: CountedClient) -> None:
    digest = indexed(worker, "cook")
    found = by_digest(worker, digest, "cook")
    assert found is not None
    best, other = found.hits[0], found.hits[1:]
    assert (best.message, best.part, best.result, best.start, best.end) == (2, 1, 2, 0, len(RECIPE))
    assert best.score > max(hit.score for hit in other) + 0.2
    assert (found.windows, found.missing, found.prefix_digest) == (4, 0, digest)
    assert {hit.embedding_error for hit in found.hits} == {worker.facts.fast.embedding_error}
    assert found.uncovered_characters == 0
    (report_hit,) = (hit for hit in found.hits if hit.dropped)
    assert [(each.message, each.part, each.start, each.end) for each in report_hit.dropped] == [
        (3, None, 0, len(report(43)))
    ]
    assert 0.0 < report_hit.delta_hat == report_hit.dropped[0].distance < 0.3163
    with_text = by_messages(worker, "cook")
    assert with_text.hits[0].text == RECIPE
    assert replace(with_text, hits=tuple(replace(hit, text=None) for hit in with_text.hits)) == found


def test_nothing_is_found_of_another_tenant_or_prefix_or_where_nothing_was_to_be_kept(worker: CountedClient) -> None:
    digest = indexed(worker, "mine")
    assert by_digest(worker, digest, "mine") is not None
    assert by_digest(worker, digest, "yours") is None
    assert by_digest(worker, digest[::-1], "mine") is None
    assert by_digest(worker, "", "mine") is None
    assert by_digest(worker, indexed(worker, "no store", index=False), "no store") is None
    by_messages(worker, "searched")
    assert by_digest(worker, by_messages(worker, "searched").prefix_digest, "searched") is None


def test_what_a_tenant_forgets_is_gone_whether_it_waited_or_was_written(worker: CountedClient) -> None:
    digest = indexed(worker, "waits")
    assert isinstance(worker.submit(Forget("waits")).result(60), Forgotten)
    assert by_digest(worker, digest, "waits") is None
    other, digest = indexed(worker, "stays"), indexed(worker, "goes")
    for _ in tries():
        if worker.held.index_bytes > 6 * ROW_BYTES:
            break
        by_digest(worker, other, "stays")  # every answer says what is held
    worker.submit(Forget("goes")).result(60)
    assert by_digest(worker, digest, "goes") is None
    assert by_digest(worker, other, "stays") is not None


def test_an_index_outlives_its_worker_and_is_found_by_another_process_of_the_same_key(
    start: Start, store: Path
) -> None:
    first = start(store)
    digest = indexed(first, "salt")
    expected = by_digest(first, digest, "salt")
    assert expected is not None
    first.close()  # at once: what waits is written
    other = start(store)
    assert kept(store) > 0
    assert by_digest(other, digest, "salt") == expected
    assert by_digest(other, digest, "other salt") is None
    assert other.submit(Forget("salt")).result(60) == Forgotten()
    assert kept(store) == 0
    assert by_digest(other, digest, "salt") is None


def test_of_a_conversation_that_goes_on_the_newest_prefix_is_found(worker: CountedClient) -> None:
    compactor = WorkerCompactor(PAPER, worker, index=True)
    first, second = (compactor.compact(TALK[:end], salt="goes on").report.prefix_digest for end in (3, 4))
    assert by_digest(worker, first, "goes on") is None
    found = by_digest(worker, second, "goes on")
    assert found is not None
    assert found.windows == 4


def test_a_store_that_cannot_be_used_costs_the_index_and_nothing_else(
    start: Start, tmp_path: Path, worker: CountedClient
) -> None:
    (tmp_path / "file").write_text("where a folder should be")
    errors = Errors()
    client = start(tmp_path / "file" / "store.sqlite", on_index_error=errors)
    digest = indexed(client)
    assert digest == indexed(worker)
    for _ in tries():
        if errors.total and client.held.index_errors == errors.total:
            break
        assert by_messages(client).hits[0].text == RECIPE
    with pytest.raises(StoreError):
        by_digest(client, "a digest that is nowhere")
    with pytest.raises(StoreError):
        client.submit(Forget("")).result(60)


def test_a_worker_that_is_killed_before_it_wrote_takes_the_index_along_and_no_more(worker: CountedClient) -> None:
    digest, restarts, facts = indexed(worker, "killed"), worker.restarts, worker.facts
    os.kill(worker.facts.process, signal.SIGKILL)
    for _ in tries():
        if worker.restarts > restarts:
            break
    assert by_digest(worker, digest, "killed") is None
    assert replace(worker.facts, process=facts.process, fast=facts.fast) == facts, "the device and its reason too"
    assert by_messages(worker, "killed").hits[0].text == RECIPE
    assert indexed(worker, "killed") == digest
    assert by_digest(worker, digest, "killed") is not None
