"""A receiver of OpenTelemetry traces, as a collector would be: OTLP over HTTP on a loopback port."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

MOST_SPANS = 10_000
WAIT_SECONDS = 60


@dataclass(frozen=True)
class Span:
    """What the tests look at; ids are hexadecimal, and `parent_id` is empty for the first span of a trace."""

    name: str
    trace_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]


class TraceReceiver:
    """Keeps the newest spans that arrive while it is entered."""

    def __init__(self) -> None:
        self._spans: deque[Span] = deque(maxlen=MOST_SPANS)
        self._arrival = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def endpoint(self) -> str:
        """Where spans are sent to."""
        return f"http://127.0.0.1:{self._server.server_port}/v1/traces"

    @property
    def arguments(self) -> tuple[str, ...]:
        """Arguments of a vLLM whose spans shall arrive here."""
        return (f"--otlp-traces-endpoint={self.endpoint}",)

    @property
    def environment(self) -> dict[str, str]:
        """Variables of such a server: the protocol, spans at once, and no proxy on the way."""
        return {
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    def found(self, name: str, wanted: Callable[[Span], bool]) -> list[Span]:
        """The spans of this name, so far, of which `wanted` is true."""
        with self._arrival:
            return [span for span in self._spans if span.name == name and wanted(span)]

    def wait_for(self, name: str, wanted: Callable[[Span], bool]) -> Span:
        """The first span of this name of which `wanted` is true, once it is there."""
        with self._arrival:
            arrived = self._arrival.wait_for(lambda: self.found(name, wanted), WAIT_SECONDS)
        assert arrived, f"no such {name} in {WAIT_SECONDS} s"
        return arrived[0]

    def _take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        spans = [
            _span(span) for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans
        ]
        with self._arrival:
            self._spans += spans
            self._arrival.notify_all()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        take = self._take

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                take(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Nothing: the test run's output is for tests."""

        return Handler


def _span(span: Any) -> Span:
    attributes = {entry.key: getattr(entry.value, entry.value.WhichOneof("value")) for entry in span.attributes}
    ids = (span.trace_id.hex(), span.parent_span_id.hex())
    return Span(span.name, *ids, span.start_time_unix_nano, span.end_time_unix_nano, attributes)
