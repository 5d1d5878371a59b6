"""Group H: what the plugin costs everybody else, and what its figures may say."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from fastapi import FastAPI

from lam_vllm import Compactor, make_config
from lam_vllm.compactors import MAX_COMPACTORS
from lam_vllm.config import CompactorConfig
from lam_vllm.encoders.base import Encoder
from lam_vllm.errors import EncoderError
from lam_vllm.metrics import APIS, CAUSES, LOOKUPS, NO_REASON, SOURCES, STAGES, STORES
from lam_vllm.prefix_memo import PrefixMemo
from lam_vllm.records import RecordStore, open_records
from lam_vllm.serving.box import RequestBox
from lam_vllm.serving.prefix_watch import PrefixWatch
from lam_vllm.serving.rollout import Rollout
from lam_vllm.serving.routes import make_router
from lam_vllm.stores import StoreError, StoreSettings
from lam_vllm.stores.behind import RowsBehind
from lam_vllm.stores.redis import RedisRows
from lam_vllm.types import Layer, Outcome, Reason
from tests.serving.fakes import KEY, RefusedError, Server, with_client

from .agent import LINES, MODULE, OTHER, Make, agent, emitted, ledger, listing, numbered

EDITED = MODULE.replace("timeout=30)", "timeout=31)")
REPEATED = agent(MODULE, OTHER, MODULE)
LISTING = listing("berth", "crew", "tide")


class BusyEncoder:
    """An encoder that is at work until it is released, and notes in which threads."""

    fingerprint, name, dimension, window_tokens, threshold_cos = "busy", "busy", 2, 510, 0.95

    def __init__(self) -> None:
        self.begun, self.release = threading.Event(), threading.Event()
        self.threads: set[int] = set()

    def token_offsets(self, text: str) -> list[tuple[int, int]]:
        return [(place, place + 1) for place in range(len(text))]

    def encode(self, text: str) -> Any:
        self.threads.add(threading.get_ident())
        self.begun.set()
        self.wait()
        raise EncoderError("released")

    def wait(self) -> None:
        """Be at work; at most 10 seconds in all, so that a test of what waits fails and does not hang."""
        self.release.wait(10)
        self.release.set()


def ask(server: Server, messages: Any, box: RequestBox | None = None, **fields: Any) -> Any:
    """What reached the renderer."""
    return asyncio.run(server.ask(messages, box, **fields))


def every_outcome(server: Server, number: int) -> None:
    """One request of each outcome that a client can bring about, in which names and texts differ by `number`."""
    own = [
        {"role": "user", "content": f"visitor {number}"},
        *agent(MODULE, f"{number}\n{OTHER}", MODULE, tool=f"t{number}"),
    ]
    names: dict[str, Any] = {
        "user": f"u{number}",
        "session_id": f"s{number}",
        "model": f"m{number}",
        "cache_salt": f"c{number}",
    }
    ask(server, own, RequestBox(api="responses"), **names)  # changed
    ask(server, own[:5], RequestBox(api="messages"), **names)  # unchanged
    ask(server, own[:1], **names)  # unchanged, no tool result
    ask(server, own, lam="observe", **names)
    ask(server, own, lam=False, **names)  # passed through
    ask(server, own, truncate_prompt_tokens=10, **names)  # passed through
    ask(server, own, RequestBox(api="tokenize", authorized=False), **names)  # passed through
    with pytest.raises(RefusedError):
        ask(server, own, lam={f"option_{number}": number}, **names)


def labels(server: Server) -> set[tuple[str, str]]:
    """Names and values of every label of every sample, bounds of buckets aside."""
    return {
        label
        for family in server.registry.collect()
        for sample in family.samples
        for label in sample.labels.items()
        if label[0] != "le"
    }


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


def test_f90_no_request_writes_a_line_above_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server = Server()
    for number in range(3):
        every_outcome(server, number)
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.DEBUG] == []
    assert {
        outcome
        for outcome in get_args(Outcome)
        if any(f"/{outcome}/" in key and number for key, number in counted(server).items())
    } == {*get_args(Outcome)} - {"failed_open"}


def test_f90_a_failure_that_lasts_writes_one_traceback_and_not_one_a_request(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    encoder = BusyEncoder()
    encoder.release.set()
    server = Server(config=CompactorConfig(profile="paper"), encoder=encoder)
    for number in range(5):
        assert ask(server, agent(f"{number}\n{MODULE}"))
    assert server.counted("failed_open", "encoder_error") == 5
    assert len([record for record in caplog.records if record.levelno > logging.DEBUG]) == 1


def test_f90_a_store_that_is_gone_writes_one_line_and_not_one_a_request(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server, errors = Server(), Counter[str]()
    gone = RedisRows("redis://127.0.0.1:1/0", "records", 64_000_000, 604_800.0)
    rows = RowsBehind(gone, lambda lost: errors.update(lost=lost), label="the store", pause_seconds=0.0)
    records = server.service.handler.records = RecordStore(rows, KEY)
    for number in range(20):
        ask(server, agent(f"{number}\n{MODULE}", MODULE, f"{number}\n{MODULE}"))
        with pytest.raises(StoreError):
            records.look_up("", f"{number:064x}")
    assert server.counted("changed", "none") == 20
    assert errors["lost"] >= 20
    records.close()
    lines = [record.getMessage() for record in caplog.records if record.levelno > logging.DEBUG]
    assert len(lines) == 1 and lines[0].startswith("lam: the store failed and is tried again")


def counted(server: Server) -> dict[str, float]:
    return server.service.metrics.counts("requests")


@pytest.mark.parametrize("share", [1.0, 0.0])
def test_f91_labels_come_from_fixed_sets_and_100_visitors_add_no_series(share: float) -> None:
    server = Server(rollout=Rollout(share))
    every_outcome(server, 0)
    before = labels(server)
    allowed = {
        "api": {*APIS},
        "outcome": {*get_args(Outcome)},
        "reason": {*get_args(Reason), NO_REASON},
        "layer": {*get_args(Layer)},
        "stage": {*STAGES},
        "cause": {*CAUSES},
        "source": {*SOURCES},
        "memo": {"prefix", "embedding"},
        "store": {*STORES},
        "result": {*LOOKUPS},
    }
    assert {name for name, _ in before} == set(allowed)
    for number in range(1, 100):
        every_outcome(server, number)
    assert labels(server) == before
    assert all(value in allowed[name] for name, value in before)
    assert (("reason", "canary") in before) == (share == 0.0)


def test_f91_a_service_without_an_engine_counts_under_one_api_whoever_asks() -> None:
    server, seen = Server(standalone=True), []

    async def use(client: httpx.AsyncClient) -> None:
        for number in range(20):
            body = {"messages": REPEATED, "model": f"m{number}", "cache_salt": f"c{number}"}
            (await client.post("/compact", json=body)).raise_for_status()
            (await client.get(f"/records/{number}", headers={"x-lam-cache-salt": f"c{number}"})).read()
            seen.append(labels(server))

    with_client(server, use)
    assert all(each == seen[0] for each in seen)
    assert [key for key, number in counted(server).items() if number] == ["compact/changed/none"]


def texts() -> Iterator[tuple[str, str]]:
    """Results, two by two, of which the second is shortened in every way there is."""
    yield MODULE, EDITED
    yield numbered(LINES), numbered(["import sails", *LINES])
    yield ledger(0), ledger(1)
    yield LISTING, LISTING.replace("crew/forms", "crew/fines")
    yield OTHER, "tick tack tock, says the clock of the office\n" * 30


@pytest.mark.parametrize("aliases", [False, True])
def test_f94_what_is_reported_is_what_is_missing_from_the_text_that_goes_out(
    make_careful: Make, aliases: bool, count_tokens: Callable[[str], int]
) -> None:
    given = [text for pair in texts() for text in pair]
    compaction = make_careful(directory_aliases=aliases).compact(agent(*given))
    sizes = [
        (count_tokens(before), count_tokens(after)) for before, after in zip(given, emitted(compaction), strict=True)
    ]
    for place, (before, after) in enumerate(sizes):
        cuts = [cut for cut in compaction.decisions if cut.result == place + 1]
        saved = sum(cut.removed_tokens - cut.stub_tokens for cut in cuts)
        assert abs(before - after - saved) <= 2 * len(cuts)  # a tokenizer may merge over the end of a line
    assert len(compaction.decisions) >= 5 + aliases
    report = compaction.report
    assert sum(report.removed_tokens.values()) == sum(cut.removed_tokens for cut in compaction.decisions)
    assert report.stub_tokens == sum(cut.stub_tokens for cut in compaction.decisions)


def test_f94_a_request_is_counted_once_and_settled_once() -> None:
    server = Server()
    for turn in range(1, len(REPEATED) + 1):
        ask(server, REPEATED[:turn])
        assert len(server.box.settled) == 1
    assert sum(counted(server).values()) == len(REPEATED)
    assert server.registry.get_sample_value("lam:removal_ratio_count") == len(REPEATED)


def test_f94_a_compaction_without_an_engine_is_counted_once_and_settled_once() -> None:
    server = Server(standalone=True)

    async def use(client: httpx.AsyncClient) -> None:
        for _ in range(3):
            (await client.post("/compact", json={"messages": REPEATED})).raise_for_status()

    with_client(server, use)
    metrics = server.service.metrics
    assert {key: number for key, number in counted(server).items() if number} == {"compact/changed/none": 3}
    assert server.registry.get_sample_value("lam:removal_ratio_count") == 3
    (avoided,) = metrics.counts("uncached_tokens_avoided").values()  # of three equal requests: once
    original, prefilled = (metrics.counts(f"prompt_tokens_{name}")["compact"] for name in ("original", "prefilled"))
    assert 3 * avoided == original - prefilled > 0


def test_f94_a_dry_run_beside_an_engine_is_counted_nowhere() -> None:
    server = Server()
    before = labels(server), counted(server)

    async def use(client: httpx.AsyncClient) -> None:
        (await client.post("/compact", json={"messages": REPEATED})).raise_for_status()

    with_client(server, use)
    assert (labels(server), counted(server)) == before
    assert server.registry.get_sample_value("lam:removal_ratio_count") == 0


def test_f94_tokens_on_the_metrics_add_up_to_those_of_the_prompts() -> None:
    server = Server()
    ask(server, REPEATED)
    (settled,) = server.box.settled
    metrics = server.service.metrics
    assert metrics.counts("prompt_tokens_original")["chat"] == settled.original_tokens
    assert metrics.counts("prompt_tokens_prefilled")["chat"] == settled.prefilled_tokens
    (avoided,) = metrics.counts("uncached_tokens_avoided").values()
    assert avoided == settled.original_tokens - settled.prefilled_tokens > 0
    ratio = server.registry.get_sample_value("lam:removal_ratio_sum")
    assert ratio == pytest.approx(avoided / settled.original_tokens)


def test_f95_requests_of_which_nothing_was_removed_are_in_the_distribution() -> None:
    server = Server()
    for messages in (agent(MODULE), agent(OTHER), [{"role": "user", "content": "Good morning."}], REPEATED):
        ask(server, messages)

    def below(bound: str) -> float | None:
        return server.registry.get_sample_value("lam:removal_ratio_bucket", {"le": bound})

    assert (below("0.0"), below("0.1"), below("+Inf")) == (3, 3, 4)
