"""A real embeddings server for tests: the packaged MiniLM behind /v1/embeddings, which can be made to misbehave."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import numpy as np

from lam_vllm.encoders.base import Encoder

Answer = dict[str, Any]
Fault = Callable[["Handler", Answer], None]
"""Changes the answer, or raises one of the two errors below."""


class RefuseError(Exception):
    """Answer with this status and text."""

    def __init__(self, status: int, text: str) -> None:
        self.status, self.text = status, text
        super().__init__(status, text)


class HangUpError(Exception):
    """Close the connection without an answer."""


class EmbeddingServer(ThreadingHTTPServer):
    """Serves `encoder`; keeps what it was asked. `fault` is applied to every answer."""

    daemon_threads = True

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.encoder = encoder
        self.fault: Fault | None = None
        self.asked: list[Answer] = []
        self.authorizations: list[str | None] = []
        self.peers: set[tuple[str, int]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """One kept connection."""

    protocol_version = "HTTP/1.1"
    server: EmbeddingServer

    def do_POST(self) -> None:
        self.body: Answer = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(self.body)
        self.server.authorizations.append(self.headers["Authorization"])
        self.server.peers.add(self.client_address)
        try:
            answer = self._answer()
            if self.server.fault:
                self.server.fault(self, answer)
            self._send(200, json.dumps(answer))
        except RefuseError as refusal:
            self._send(refusal.status, refusal.text)
        except HangUpError:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def _answer(self) -> Answer:
        if self.path != "/v1/embeddings":
            raise RefuseError(404, f"no {self.path}")
        encoder, texts = self.server.encoder, self.body["input"]
        vectors = [encoder.encode(text) for text in texts]
        rows = [
            {"index": n, "embedding": written(vector, self.body["encoding_format"])} for n, vector in enumerate(vectors)
        ]
        tokens = sum(len(encoder.token_offsets(text)) + 2 for text in texts)
        return {"object": "list", "data": rows, "usage": {"prompt_tokens": tokens}}

    def _send(self, status: int, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def written(vector: Any, encoding: str) -> str | list[float]:
    """A vector as an answer holds it."""
    if encoding == "base64":
        return base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode()
    return [float(value) for value in vector]


@contextmanager
def serving(encoder: Encoder) -> Iterator[EmbeddingServer]:
    """A server that answers while inside."""
    server = EmbeddingServer(encoder)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
