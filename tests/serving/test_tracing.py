"""The span of a compaction, with OpenTelemetry's own SDK; tests/server has it beside vLLM's."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from lam_vllm.serving.box import RequestBox, Settled
from lam_vllm.serving.hook import install
from lam_vllm.serving.tracing import REQUEST_ID, SPAN_NAME, CompactionSpans, compaction_spans, request_id
from tests.server.otlp import TraceReceiver
from tests.serving.fakes import TEXT, Server, agent_messages

REPEATED = agent_messages(TEXT, TEXT)
SETTLED = Settled("unchanged", "no_repeat", 1, 1, 0.0)
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def scope(path: str = "/v1/chat/completions", **headers: str) -> dict[str, Any]:
    return {
        "path": path,
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
    }


class Traced:
    """A hooked server whose spans are kept."""

    def __init__(self, **how: Any) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.server = Server(**how)
        self.tracer = provider.get_tracer("test")
        install(self.server.renderer, self.server.service.admission, CompactionSpans(self.tracer))

    def ask(self, messages: Any = REPEATED, box: RequestBox | None = None, **fields: Any) -> tuple[ReadableSpan, ...]:
        asyncio.run(self.server.ask(messages, box or RequestBox(scope=scope()), **{"request_id": "own", **fields}))
        spans: tuple[ReadableSpan, ...] = self.exporter.get_finished_spans()
        return spans


def test_a_compaction_has_a_span_with_its_figures_and_its_time() -> None:
    traced = Traced()
    (span,) = traced.ask()
    (settled,) = traced.server.box.settled
    assert settled.report is not None
    assert span.name == SPAN_NAME
    assert dict(span.attributes or {}) == {
        REQUEST_ID: "chatcmpl-own",
        "lam.outcome": "changed",
        "lam.reason": "none",
        "lam.profile": "exact",
        "lam.removed_tokens": sum(settled.report.removed_tokens.values()),
        "lam.stub_tokens": settled.report.stub_tokens,
        "lam.delta_hat": 0.0,
        "lam.prefix": settled.report.prefix_digest,
    }
    assert span.parent is None
    assert span.start_time is not None and span.end_time is not None
    assert span.end_time - span.start_time == int(settled.seconds * 1e9)


def test_no_text_no_salt_and_no_option_stands_in_a_span() -> None:
    secret = "unlikely words"
    box = RequestBox(scope=scope(x_lam_cache_salt=secret), salt_header=secret, options_header='{"min_tokens": 0}')
    (span,) = Traced().ask(agent_messages(f"{TEXT}\n{secret}", f"{TEXT}\n{secret}"), box)
    assert secret not in span.to_json()
    assert TEXT.splitlines()[3] not in span.to_json()


def test_the_callers_span_is_the_parent() -> None:
    box = RequestBox(scope=scope(traceparent=f"00-{TRACE}-{SPAN}-01", tracestate="vendor=1"))
    (span,) = Traced().ask(box=box)
    assert span.context is not None and span.parent is not None
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, SPAN)
    assert span.context.trace_state.to_header() == "vendor=1"


def test_a_trace_that_the_caller_does_not_sample_gets_no_span() -> None:
    assert Traced().ask(box=RequestBox(scope=scope(traceparent=f"00-{TRACE}-{SPAN}-00"))) == ()


def test_without_headers_the_span_that_is_current_is_the_parent() -> None:
    traced = Traced()
    with traced.tracer.start_as_current_span("of the web framework") as outer:
        traced.ask()
    ours, _ = traced.exporter.get_finished_spans()
    assert ours.parent == outer.get_span_context()


def test_what_was_passed_through_has_a_span_with_its_reason_and_what_is_off_has_none() -> None:
    passed, off = Traced(), Traced(mode="off")
    (span,) = passed.ask(truncate_prompt_tokens=8)
    assert dict(span.attributes or {}) == {
        REQUEST_ID: "chatcmpl-own",
        "lam.outcome": "passed_through",
        "lam.reason": "truncation",
    }
    assert off.ask() == ()


IDS: dict[str, tuple[dict[str, Any], int, set[str], str | None]] = {
    "chat": (scope(), 0, set(), "chatcmpl-own"),
    "chat under a root path": (
        {**scope("/models/v1/chat/completions"), "root_path": "/models"}, 0, set(), "chatcmpl-own",
    ),
    "chat with a header": (scope(x_request_id="given"), 0, set(), "chatcmpl-given"),
    "chat with an empty header": (scope(x_request_id=""), 0, set(), "chatcmpl-"),
    "messages": (scope("/v1/messages", x_request_id="given"), 0, set(), "chatcmpl-given"),
    "responses": (scope("/v1/responses"), 0, set(), "own_0"),
    "responses with a header": (scope("/v1/responses", x_request_id="given"), 0, set(), "own_0"),
    "responses, later turn": (scope("/v1/responses"), 2, set(), "own_2"),
    "batch": (scope("/v1/chat/completions/batch", x_request_id="given"), 1, set(), "chatcmpl-given_1"),
    "batch with a field": (scope("/v1/chat/completions/batch"), 1, {"request_id"}, "chatcmpl-own_1"),
    "batch without an id": (scope("/v1/chat/completions/batch"), 1, set(), None),
    "render": (scope("/v1/chat/completions/render"), 0, set(), None),
    "count tokens": (scope("/v1/messages/count_tokens"), 0, set(), None),
    "tokenize": (scope("/tokenize", x_request_id="given"), 0, set(), None),
}  # fmt: skip


@pytest.mark.parametrize("name", IDS)
def test_the_id_is_the_one_of_vllms_engine(name: str) -> None:
    given, settled, fields, expected = IDS[name]
    box = RequestBox(scope=given, settled=settled * [SETTLED])
    assert request_id(box, SimpleNamespace(request_id="own", model_fields_set=fields)) == expected


def test_outside_a_request_there_is_no_id() -> None:
    assert request_id(RequestBox(), SimpleNamespace()) is None


def test_a_tracer_that_fails_loses_no_request_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    install(server.renderer, server.service.admission, CompactionSpans(tracer=None))
    for _ in range(2):
        assert asyncio.run(server.ask(REPEATED, request_id="own")) is not REPEATED
    assert len(caplog.records) == 1


def test_a_process_without_a_tracer_provider_writes_no_spans() -> None:
    assert compaction_spans() is None


OF_A_PROCESS = {
    "from opentelemetry import trace; from opentelemetry.sdk.trace import TracerProvider; "
    "trace.set_tracer_provider(TracerProvider())": "CompactionSpans",
    "import sys; sys.modules['opentelemetry'] = None": "NoneType",
    "from opentelemetry import trace; trace.set_tracer_provider(trace.NoOpTracerProvider())": "NoneType",
}


@pytest.mark.parametrize("setting", OF_A_PROCESS)
def test_spans_are_written_where_the_process_has_a_provider_and_the_library(setting: str) -> None:
    code = f"{setting}; from lam_vllm.serving import tracing; print(type(tracing.compaction_spans()).__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == OF_A_PROCESS[setting]


SERVICE = """
import os
from lam_vllm.serving.box import RequestBox
from lam_vllm.serving.tracing import compaction_spans, start_tracing
from lam_vllm.serving.work import Plan
start_tracing(os.environ)
spans = compaction_spans()
print(spans is not None)
if spans is not None and os.environ.get("WRITES"):
    spans.record(RequestBox(), None, Plan([], "unchanged", "no_repeat"))
"""


def run_service(**variables: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-c", SERVICE], env={**kept, **variables}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_service_exports_to_the_endpoint_of_the_standard_variables() -> None:
    with TraceReceiver() as receiver:
        variables = {**receiver.environment, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": receiver.endpoint, "WRITES": "1"}
        assert run_service(**variables) == "True"
        span = receiver.wait_for(SPAN_NAME, lambda _: True)
    assert span.attributes == {"lam.outcome": "unchanged", "lam.reason": "no_repeat"}


def test_a_service_speaks_grpc_unless_told_otherwise_and_is_silent_without_an_endpoint() -> None:
    assert run_service(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1") == "True"
    assert run_service() == "False"
