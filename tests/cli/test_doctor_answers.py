"""`lam-vllm doctor --url` on answers that no server of ours gives: each is a finding, and none makes it fail."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.responses import Response
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lam_vllm.commands.doctor import examine, table
from lam_vllm.commands.doctor_ask import Asked
from lam_vllm.commands.doctor_metrics import Scrape
from lam_vllm.commands.doctor_metrics import examined as examined_metrics
from lam_vllm.commands.doctor_self_test import conversation, self_test
from lam_vllm.commands.doctor_state import state
from lam_vllm.commands.doctor_status import problem_of
from lam_vllm.commands.doctor_traffic import traffic
from lam_vllm.compactor import Compactor
from lam_vllm.config import CompactorConfig
from tests.cli.listening import listening, with_metrics
from tests.cli.test_doctor import found
from tests.serving.fakes import Server, count_words

STATUS: dict[str, Any] = {
    "algorithm": 1, "version": "0", "vllm_version": None, "process": 1, "processes": 1, "switched_on": True,
    "default": "on", "profile": "exact", "config": {}, "canary": 1.0, "models": [], "hint": None, "memo_bytes": 0,
    "store": {"kept": True, "kind": "memory", "url": None, "bytes": 1, "max_bytes": 2, "retention_seconds": 3.0},
    "encoder": {"name": "minilm", "reason": "configured", "restarts": 0}, "store_bytes": 1,
    "requests": {"chat/changed/none": 1.0}, "tokens_removed": {"l0": 1.0}, "prompt_tokens_original": {"chat": 2.0},
    "prompt_tokens_prefilled": {"chat": 1.0}, "prefix_breaks": {"defect": 0.0}, "lookups": {"found": 0.0},
    "store_errors": {"records": 0.0}, "guard_band_violations": 0.0,
}  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("a/b/c"), inner, max_size=3)
    ),
    max_leaves=8,
)


def with_status(**fields: Any) -> FastAPI:
    """A server whose status says these things of itself, whatever they are."""
    app = FastAPI()
    text = json.dumps({**STATUS, **fields})
    app.add_api_route("/v1/lam/status", lambda: Response(text, media_type="application/json"))
    app.mount("/", with_metrics(Server()))
    return app


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"processes": "x"}, "processes"),
        ({"process": []}, "process"),
        ({"requests": {"a/b": 1}}, "requests"),
        ({"requests": ["a/b/c"]}, "requests"),
        ({"requests": {"chat/changed/none": float("inf")}}, "requests"),
        ({"tokens_removed": {"l0": "many"}}, "tokens_removed.l0"),
        ({"encoder": {"name": "minilm", "restarts": "many"}}, "encoder.restarts"),
        ({"store": {"bytes": "x"}}, "store.bytes"),
        ({"store": {"max_bytes": [1]}}, "store.max_bytes"),
        ({"profile": ["exact"]}, "profile"),
        ({"prefix_breaks": {"defect": None}}, "prefix_breaks.defect"),
        ({"lookups": 1}, "lookups"),
        ({"guard_band_violations": "none"}, "guard_band_violations"),
    ],
)
def test_a_status_that_no_server_of_ours_gives_is_a_finding(fields: dict[str, Any], place: str) -> None:
    with listening(with_status(**fields)) as url:
        finding = found(examine(url), "plugin")
    assert finding.wrong and finding.found == "its status cannot be read" and finding.remedy
    assert finding.why.startswith(place)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    fields=st.dictionaries(st.sampled_from(sorted(STATUS)), JSON, max_size=3)
    | st.dictionaries(st.text(max_size=5), JSON, max_size=3)
)
def test_nothing_that_a_status_says_makes_the_doctor_fail(fields: dict[str, Any]) -> None:
    """As `examine` goes on once it has the status; the requests that it makes stand in other tests."""
    status = {**STATUS, **fields}
    if not problem_of(status):
        statuses = {1: status}
        scraped = Scrape({"lam:requests": 1.0})
        assert table([*state(statuses), *examined_metrics(scraped, statuses), *traffic(statuses)]).row_count > 5


@pytest.mark.parametrize("report", [None, [], "x", {"saved_tokens": []}])
def test_a_report_may_be_anything(report: Any) -> None:
    messages = Compactor(CompactorConfig(profile="exact"), count_words).compact(conversation()).messages
    app = FastAPI()
    app.add_api_route("/v1/lam/compact", lambda: {"messages": messages, "report": report}, methods=["POST"])
    with listening(app) as url:
        (finding,) = self_test(Asked(url), "exact")
    assert finding.found == "passed"


def spoiled(messages: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Answers that a server must not give, and what is wrong with each."""
    last = messages[-1]
    return [
        ("not shortened", messages),
        ("else than the text", messages[:-1]),
        ("else than the text", [{**messages[0], "content": "Hm."}, *messages[1:-1], {**last, "content": "x"}]),
        ("another text", [*messages[:-1], {**last, "content": "[result 1, lines 1-9 repeat]"}]),
        ("do not read back", [*messages[:-1], {**last, "content": "[lines 3-90 of result 1 repeat]"}]),
    ]


@pytest.mark.parametrize("place", range(5))
def test_an_answer_that_is_wrong_is_told(place: int) -> None:
    words, messages = spoiled(conversation())[place]
    server = Server()
    app = FastAPI()
    app.add_api_route("/v1/lam/compact", lambda: {"messages": messages, "report": {}}, methods=["POST"])
    app.mount("/", with_metrics(server))
    with listening(app) as url:
        finding = found(examine(url), "self-test: exact")
    assert finding.wrong and words in finding.why
