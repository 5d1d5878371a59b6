"""The span of a compaction beside vLLM's own span of the same request, as an OTLP collector gets them."""

from __future__ import annotations

import json
import secrets
from typing import Any

import pytest

from lam_vllm.serving.tracing import REQUEST_ID, SPAN_NAME
from tests.server.conftest import SERVED_NAME, LiveServer
from tests.server.fleet import Fleet
from tests.server.otlp import Span, TraceReceiver
from tests.server.talks import body, recorded
from tests.serving.fakes import TEXT, agent_messages

VLLM_SPAN = "llm_request"
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
SALT = "a salt that no span may hold"
OPTIONS: dict[str, Any] = {"profile": "exact"}


def ask(server: LiveServer, path: str, fields: dict[str, Any], options: Any = None, **headers: str) -> Any:
    """The answer to a request that wants compaction."""
    fields = {"model": SERVED_NAME, "cache_salt": SALT, **fields}
    sent = {"x-lam": json.dumps(OPTIONS if options is None else options), **headers}
    with server.client() as client:
        answer = client.post(path, json=fields, headers=sent)
    assert answer.status_code == 200, answer.text
    return answer


def both(traces: TraceReceiver, request_id: str) -> tuple[Span, Span]:
    """Ours and vLLM's span of one request of the engine."""

    def wanted(span: Span) -> bool:
        return span.attributes.get(REQUEST_ID) == request_id

    return traces.wait_for(SPAN_NAME, wanted), traces.wait_for(VLLM_SPAN, wanted)


@pytest.mark.parametrize("api", PATHS)
def test_a_request_without_ids_has_one_span_of_ours_under_the_id_that_vllm_made(
    api: str, fleet: Fleet, traces: TraceReceiver
) -> None:
    parent = secrets.token_hex(16)
    ask(fleet.server, PATHS[api], body(api, recorded()), traceparent=f"00-{parent}-{'1' * 16}-01")
    theirs = traces.wait_for(VLLM_SPAN, lambda span: span.trace_id == parent)
    (ours,) = traces.found(SPAN_NAME, lambda span: span.trace_id == parent)
    assert ours.attributes[REQUEST_ID] == theirs.attributes[REQUEST_ID]
    assert ours.parent_id == theirs.parent_id == "1" * 16
    assert ours.start_ns < ours.end_ns <= theirs.end_ns


@pytest.mark.parametrize(
    ("api", "form", "carried"),
    [
        ("chat", "chatcmpl-{}", "header"),
        ("messages", "chatcmpl-{}", "header"),
        ("chat", "chatcmpl-{}", "field"),
        ("responses", "{}_0", "field"),
    ],
)
def test_the_ids_that_a_client_gives_are_on_both_spans(
    api: str, form: str, carried: str, fleet: Fleet, traces: TraceReceiver
) -> None:
    given = f"given-{secrets.token_hex(8)}"
    header = {"X-Request-Id": given} if carried == "header" else {}
    field = {"request_id": given} if carried == "field" else {}
    ask(fleet.server, PATHS[api], {**body(api, recorded()), **field}, **header)
    ours, theirs = both(traces, form.format(given))
    assert ours.attributes[REQUEST_ID] == theirs.attributes[REQUEST_ID] == form.format(given)


def test_each_prompt_of_a_batch_has_its_own_span(fleet: Fleet, traces: TraceReceiver) -> None:
    given = f"batch-{secrets.token_hex(8)}"
    fields = {**body("chat", []), "messages": [agent_messages(TEXT, TEXT), agent_messages(TEXT)]}
    ask(fleet.server, f"{PATHS['chat']}/batch", fields, **{"X-Request-Id": given})
    prompts = [both(traces, f"chatcmpl-{given}_{place}") for place in range(2)]
    assert prompts[0][0].attributes["lam.prefix"] != prompts[1][0].attributes["lam.prefix"]


def test_the_span_says_what_the_report_says_and_holds_no_text_and_no_salt(fleet: Fleet, traces: TraceReceiver) -> None:
    given = secrets.token_hex(8)
    answer = ask(fleet.server, PATHS["chat"], body("chat", recorded()), **{"X-Request-Id": given})
    report = json.loads(answer.headers["x-lam-report"])
    ours, _ = both(traces, f"chatcmpl-{given}")
    assert ours.attributes == {
        REQUEST_ID: f"chatcmpl-{given}",
        "lam.outcome": "changed",
        "lam.reason": "none",
        "lam.profile": "exact",
        "lam.removed_tokens": sum(report["removed_tokens"].values()),
        "lam.stub_tokens": report["stub_tokens"],
        "lam.delta_hat": 0.0,
        "lam.prefix": report["prefix"],
    }
    assert (ours.end_ns - ours.start_ns) / 1e6 == pytest.approx(report["milliseconds"], abs=0.01)


def test_a_request_that_is_off_has_no_span_of_ours(fleet: Fleet, traces: TraceReceiver) -> None:
    given = secrets.token_hex(8)
    ask(fleet.server, PATHS["chat"], body("chat", recorded()), False, **{"X-Request-Id": given})
    # One process writes both, ours first: when vLLM's has arrived, ours would have.
    traces.wait_for(VLLM_SPAN, lambda span: span.attributes[REQUEST_ID] == f"chatcmpl-{given}")
    assert not traces.found(SPAN_NAME, lambda span: span.attributes.get(REQUEST_ID) == f"chatcmpl-{given}")
