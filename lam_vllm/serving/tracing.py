"""An OpenTelemetry span for each compaction, joined to vLLM's own span by request id and trace."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from lam_vllm.serving.asgi import Scope, header_of, path_of
from lam_vllm.serving.box import RequestBox
from lam_vllm.serving.work import Plan

logger = logging.getLogger(__name__)

SPAN_NAME = "lam.compaction"
REQUEST_ID = "gen_ai.request.id"
"""The attribute under which vLLM's span has the id of the request in the engine."""

_CHAT_PATHS = ("/v1/chat/completions", "/v1/messages")
_BATCH_PATH = "/v1/chat/completions/batch"
_RESPONSES_PATH = "/v1/responses"
_TRACE_HEADERS = ("traceparent", "tracestate")
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


class CompactionSpans:
    """Writes spans to a tracer: figures and names, never text, salt or key."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer
        self._has_failed = False

    def record(self, box: RequestBox, request: Any, plan: Plan) -> None:
        """Write the span of a compaction that ended just now; none for a request that wanted no compaction."""
        if plan.reason == "off":
            return
        end = time.time_ns()
        try:
            span = self._tracer.start_span(
                SPAN_NAME,
                context=_parent(box.scope),
                start_time=end - int(plan.seconds * 1e9),
                attributes=_attributes(plan, request_id(box, request)),
            )
            span.end(end)
        except Exception as error:  # noqa: BLE001 - a span is no reason to lose a request
            self._log(error)

    def _log(self, error: Exception) -> None:
        """One traceback in all: a line per request would slow the server down when it is ill."""
        if not self._has_failed:
            logger.error("lam: a span cannot be written; requests are answered all the same", exc_info=error)
        self._has_failed = True


def compaction_spans() -> CompactionSpans | None:
    """A writer to this process's tracer provider; None where there is none, so that nothing is spent on spans.

    vLLM sets the provider while it builds its engine client, if it was started with `--otlp-traces-endpoint`.
    """
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    return CompactionSpans(provider.get_tracer("lam_vllm"))


def start_tracing(environment: Mapping[str, str]) -> None:
    """Give a process that is not vLLM a tracer provider, if OpenTelemetry's variables name an OTLP endpoint.

    Nothing happens where they name none, or the library is not installed.
    """
    if not any(environment.get(name) for name in _ENDPOINTS):
        return
    protocol = next((environment[name] for name in _PROTOCOLS if environment.get(name)), "grpc")
    transport = "http" if protocol == "http/protobuf" else "grpc"
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        exporter = import_module(f"opentelemetry.exporter.otlp.proto.{transport}.trace_exporter").OTLPSpanExporter()
    except ImportError:
        return
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)


def request_id(box: RequestBox, request: Any) -> str | None:
    """The id under which vLLM's engine will know this prompt; None where it gets none, or one that vLLM makes later."""
    if box.scope is None:
        return None
    path, own = path_of(box.scope), getattr(request, "request_id", None)
    # A request of several prompts, or of several turns with built-in tools, comes here once for each, in order.
    place = len(box.settled)
    if path == _RESPONSES_PATH:
        return f"{own}_{place}"
    if path == _BATCH_PATH and "request_id" not in request.model_fields_set:
        own = None  # each prompt's object has an id of its own, and vLLM makes another for all of them
    given = header_of(box.scope["headers"], "x-request-id")
    base = own if given is None else given
    if path == _BATCH_PATH:
        return None if base is None else f"chatcmpl-{base}_{place}"
    return f"chatcmpl-{base}" if path in _CHAT_PATHS else None


def _parent(scope: Scope | None) -> Any:
    """The context of the caller's span by its W3C headers, as vLLM takes it; None, the current one, without them."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers = scope["headers"] if scope is not None else ()
    given = {name: header_of(headers, name) for name in _TRACE_HEADERS}
    carried = {name: value for name, value in given.items() if value is not None}
    return TraceContextTextMapPropagator().extract(carried) if carried else None


def _attributes(plan: Plan, engine_id: str | None) -> dict[str, Any]:
    attributes: dict[str, Any] = {"lam.outcome": plan.outcome, "lam.reason": plan.reason}
    if engine_id is not None:
        attributes[REQUEST_ID] = engine_id
    if plan.report is None:
        return attributes
    report = plan.report
    return {
        **attributes,
        "lam.profile": report.profile,
        "lam.removed_tokens": sum(report.removed_tokens.values()),
        "lam.stub_tokens": report.stub_tokens,
        "lam.delta_hat": report.delta_hat,
        "lam.prefix": report.prefix_digest,
    }
