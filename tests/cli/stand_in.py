"""An HTTP server that answers as vLLM does, in times that are known: for what a real one cannot be made to do."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

CHARACTERS, BLOCK_TOKENS = 4, 16
"""A token is four characters; whole blocks are cached."""


@dataclass
class StandIn:
    """What it says of itself, how long it takes, what it leaves out, and what it was asked."""

    model: dict[str, Any]
    url: str = ""
    fixed_seconds: float = 0.002
    seconds_per_token: float = 5e-5
    step_seconds: float = 0.001
    tells_cached_tokens: bool = True
    answers: bool = True
    key: str | None = None
    prompts: list[str] = field(default_factory=list)
    cached: list[int] = field(default_factory=list)

    def cached_tokens(self, prompt: str) -> int:
        """Tokens of whole blocks that an earlier prompt had; the last token is never cached."""
        shared = max((common_prefix(prompt, earlier) for earlier in self.prompts), default=0)
        return min(shared, len(prompt) - CHARACTERS) // CHARACTERS // BLOCK_TOKENS * BLOCK_TOKENS


def common_prefix(one: str, two: str) -> int:
    """How many characters two texts begin with alike."""
    return next((place for place, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))


@contextmanager
def stand_in(server: StandIn) -> Iterator[StandIn]:
    """The server, listening at its `url`."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Says nothing."""

        def do_GET(self) -> None:
            self._begin("application/json")
            self.wfile.write(json.dumps({"data": [server.model]}).encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if server.key and self.headers["Authorization"] != f"Bearer {server.key}":
                self.send_error(401)
                return
            cached = server.cached_tokens(body["prompt"])
            tokens = len(body["prompt"]) // CHARACTERS
            server.prompts.append(body["prompt"])
            server.cached.append(cached)
            self._begin("text/event-stream")
            time.sleep(server.fixed_seconds + server.seconds_per_token * (tokens - cached))
            for place in range(body["max_tokens"] if server.answers else 0):
                time.sleep(server.step_seconds if place else 0)
                self._event({"choices": [{"text": " word"}]})
            details = {"prompt_tokens_details": {"cached_tokens": cached}} if server.tells_cached_tokens else {}
            self._event({"choices": [], "usage": {"prompt_tokens": tokens, **details}})
            self.wfile.write(b"data: [DONE]\n\n")

        def _begin(self, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.end_headers()

        def _event(self, event: dict[str, Any]) -> None:
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        server.url = f"http://127.0.0.1:{listening.server_port}"
        thread = Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown()
            thread.join()
