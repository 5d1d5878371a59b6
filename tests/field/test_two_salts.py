"""Two tenants send the same texts: on every way that a salt travels each finds its own, and nothing of the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from lam_vllm import Compactor, make_config
from lam_vllm.config import CompactorConfig
from lam_vllm.encoders.base import BatchEncoder
from lam_vllm.encoders.pool import EncoderPool
from lam_vllm.encoders.two_pass import FastPass
from lam_vllm.records import open_records
from lam_vllm.serving.box import RequestBox
from lam_vllm.serving.prefix_watch import PrefixWatch
from lam_vllm.stores import Rows, StoreSettings, open_rows
from lam_vllm.worker import Setup, WorkerClient
from tests.conftest import SERVED_MODEL, measured_before
from tests.serving.fakes import KEY, Server, count_words, with_client

from .agent import MODULE, OTHER, agent

REPEATED = agent(MODULE, OTHER, MODULE)
SALTS = ("a", "a", "b", "", "a", "b", "", "ab")
FIRST = [place for place, salt in enumerate(SALTS) if salt not in SALTS[:place]]
"""Where a salt is used for the first time: nothing may be found there."""
WEEK = 604_800.0
Found = Callable[[Server, str], int]


def crossings(found: list[int]) -> tuple[list[int], bool]:
    """What was found where nothing may be, and whether all the rest was found."""
    return [found[place] for place in FIRST], all(n for place, n in enumerate(found) if place not in FIRST)


def known(server: Server) -> int:
    report = server.box.settled[-1].report
    assert report is not None
    return report.work.known_messages


def by_field(server: Server, salt: str) -> int:
    asyncio.run(server.ask(REPEATED, RequestBox(api="chat"), cache_salt=salt))
    return known(server)


def by_header(server: Server, salt: str) -> int:
    asyncio.run(server.ask(REPEATED, RequestBox(api="messages", salt_header=salt)))
    return known(server)


def by_field_over_header(server: Server, salt: str) -> int:
    asyncio.run(server.ask(REPEATED, RequestBox(api="responses", salt_header="another"), cache_salt=salt))
    return known(server)


@pytest.mark.parametrize("found", [by_field, by_header, by_field_over_header])
@pytest.mark.parametrize("mode", ["on", "observe"])
def test_f80_no_prefix_of_another_salt_is_known(found: Found, mode: Any) -> None:
    server = Server(mode=mode)
    assert crossings([found(server, salt) for salt in SALTS]) == ([0] * len(FIRST), True)


@pytest.mark.parametrize("carrier", ["body", "header"])
def test_f80_a_service_without_an_engine_knows_no_prefix_of_another_salt(carrier: str) -> None:
    found: list[int] = []

    async def use(client: httpx.AsyncClient) -> None:
        for salt in SALTS:
            body, headers = {"messages": REPEATED}, {"x-lam-cache-salt": salt if carrier == "header" else "another"}
            if carrier == "body":
                body["cache_salt"] = salt  # type: ignore[assignment]
            answer = await client.post("/compact", json=body, headers=headers)
            found.append(answer.json()["report"]["work"]["known_messages"])

    with_client(Server(standalone=True), use)
    assert crossings(found) == ([0] * len(FIRST), True)


def test_f80_the_watch_of_prefixes_takes_no_notice_of_another_salt() -> None:
    watch = PrefixWatch()
    found = []
    for number, salt in enumerate(SALTS):  # each request differs from what was emitted before: a break, if it is known
        emitted = [*REPEATED[:-1], {**REPEATED[-1], "content": str(number)}]
        found.append(int(watch.note(salt, REPEATED, emitted, "config") is not None))
    assert crossings(found) == ([0] * len(FIRST), True)


@pytest.fixture(params=["memory", "sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> StoreSettings:
    if request.param == "redis":
        return StoreSettings(request.getfixturevalue("redis_url"), 64_000_000, WEEK)
    return StoreSettings(None if request.param == "memory" else str(tmp_path / "rows.sqlite"), 64_000_000, WEEK)


def test_f80_of_the_records_of_five_tenants_each_finds_its_own(store: StoreSettings) -> None:
    server = Server(store=store)
    salts = ("", "a", "b", "ab", "a\0b")
    texts = [MODULE, OTHER]
    identities = {(salt, text): server.service.handler.records.put(salt, text) for salt in salts for text in texts}
    assert len({*identities.values()}) == len(identities)
    found: dict[str, int] = dict.fromkeys(salts, 0)
    for (owner, text), identity in identities.items():
        for salt in salts:
            looked_up = server.service.handler.records.look_up(salt, identity)
            assert (looked_up.text, looked_up.known) == ((text, True) if salt == owner else (None, False))
            found[salt] += looked_up.text is not None
    assert found == dict.fromkeys(salts, len(texts))
    server.service.close()


def test_f80_who_deletes_a_tenants_text_deletes_no_other(store: StoreSettings) -> None:
    server = Server(store=store)
    records = server.service.handler.records
    identities = {salt: records.put(salt, MODULE) for salt in ("", "c", "d", "cd")}

    async def use(client: httpx.AsyncClient) -> None:
        for salt, deleted in (("nobody", 0), ("c", 1), ("c", 0)):
            answer = await client.delete("/records", headers={"x-lam-cache-salt": salt})
            assert (answer.status_code, answer.json()) == (200, {"deleted": deleted})

    with_client(server, use)
    assert {salt: records.look_up(salt, each).text is None for salt, each in identities.items()} == {
        "": False, "c": True, "d": False, "cd": False,
    }  # fmt: skip
    server.service.close()


def test_f80_a_key_of_another_fleet_finds_nothing_in_the_same_store(store: StoreSettings) -> None:
    ours, theirs = open_records(store, KEY), open_records(store, b"another key of sixteen bytes")
    identity = ours.put("a", MODULE)
    assert ours.look_up("a", identity).text == MODULE
    assert not theirs.look_up("a", identity).known
    assert ours.put("a", MODULE) != theirs.put("a", MODULE)
    ours.close()
    theirs.close()


def shared_by(encoder: BatchEncoder, rows: Rows, salt: str) -> int:
    """Bytes that one more process added to the shared embeddings."""
    canonical = next(way for way in encoder.passes() if way.canonical)
    pool = EncoderPool(encoder, FastPass(canonical, 0.0, {}, "the only one"), key=KEY, rows=rows)
    before = rows.nbytes
    Compactor(make_config({"profile": "paper"}), count_words, pool).compact(REPEATED, salt=salt)
    pool.close()
    return rows.nbytes - before


class Unclosed:
    """Rows that outlive the process that says it is done with them."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows, name)

    def close(self) -> None:
        """Not yet."""


def test_f80_embeddings_in_a_shared_store_are_of_one_salt(encoder: BatchEncoder) -> None:
    rows: Any = Unclosed(open_rows(StoreSettings(None, 64_000_000, WEEK), "embeddings", KEY, lambda _errors: None))
    added = [shared_by(encoder, rows, salt) for salt in SALTS]
    assert [bool(bytes_) for bytes_ in added] == [place in FIRST for place in range(len(SALTS))]
    assert len({bytes_ for bytes_ in added if bytes_}) == 1


@pytest.fixture(scope="module")
def worker(encoder: BatchEncoder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerClient]:
    """A real worker process with the packaged encoder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(measured_before(encoder, tmp_path_factory.mktemp("cache"))))
        client = WorkerClient(Setup("minilm", (SERVED_MODEL / "tokenizer.json").read_text(), "smollm2"))
        yield client
        client.close()


def work_of_request(server: Server, salt: str) -> int:
    asyncio.run(server.ask(REPEATED, cache_salt=salt))
    report = server.box.settled[-1].report
    assert report is not None
    return report.work.encoder_calls


def posted(server: Server, path: str, salt: str, carrier: str, **body: Any) -> dict[str, Any]:
    answers: list[dict[str, Any]] = []

    async def use(client: httpx.AsyncClient) -> None:
        if carrier == "header":
            answer = await client.post(path, json=body, headers={"x-lam-cache-salt": salt})
        else:
            answer = await client.post(path, json={**body, "cache_salt": salt})
        assert answer.status_code == 200
        answers.append(answer.json())

    with_client(server, use)
    return answers[0]


@pytest.mark.parametrize("carrier", ["body", "header"])
@pytest.mark.parametrize("path", ["/warm", "/compact"])
def test_f80_the_worker_remembers_no_embedding_of_another_salt(worker: WorkerClient, path: str, carrier: str) -> None:
    found = []
    for salt in SALTS:
        server = Server(config=CompactorConfig(profile="paper"), client=worker)  # its stop signal is of one event loop
        own = f"{path} {carrier} {salt}" if salt else f"{path} {carrier}"  # the worker is one for all of these tests
        if path == "/warm":
            answer = posted(server, path, own, carrier, messages=REPEATED, wait=True)
            work = answer["encoded"]
        else:
            work = posted(server, path, own, carrier, messages=REPEATED)["report"]["work"]["encoder_calls"]
        found.append(int(work == 0))
    assert crossings(found) == ([0] * len(FIRST), True)


def test_f80_what_was_warmed_is_found_by_the_request_of_its_salt_alone(worker: WorkerClient) -> None:
    server = Server(config=CompactorConfig(profile="paper"), client=worker)
    warmed = posted(server, "/warm", "warmed", "header", messages=REPEATED, wait=True)
    assert warmed["encoded"] > 0
    assert work_of_request(server, "not warmed") == warmed["encoded"]
    assert work_of_request(server, "warmed") == 0
