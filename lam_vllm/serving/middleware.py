"""The outermost part of the plugin on each request: its box, its report header, its time to first token, its usage."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any

from lam_vllm.metrics import Metrics
from lam_vllm.serving.asgi import App, Event, Receive, Scope, Send, header_of, path_of
from lam_vllm.serving.box import Api, RequestBox, current_box, report_header
from lam_vllm.serving.usage import with_original_tokens

logger = logging.getLogger(__name__)

OPTIONS_HEADER = "x-lam"
SALT_HEADER = "x-lam-cache-salt"
REPORT_HEADER = b"x-lam-report"

_API_OF_PATH: tuple[tuple[str, Api], ...] = (
    ("/v1/responses", "responses"),
    ("/v1/messages", "messages"),
    ("/tokenize", "tokenize"),
)
_TEXT_OF_DELTA = ("content", "reasoning", "reasoning_content", "tool_calls")
_TEXT_OF_BLOCK = ("text", "thinking", "partial_json")


class LamMiddleware:
    """Pure ASGI: hands every message on the moment it comes, streams included, unless its usage has to change."""

    def __init__(self, app: App, *, metrics: Metrics, authorized: Callable[[Scope], bool]) -> None:
        self.app = app
        self._metrics = metrics
        self._authorized = authorized
        self._has_failed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        box = RequestBox(
            api=_api_of(scope),
            options_header=header_of(scope["headers"], OPTIONS_HEADER),
            salt_header=header_of(scope["headers"], SALT_HEADER),
            authorized=self._authorized(scope),
            scope=scope,
        )
        token = current_box.set(box)
        try:
            await self.app(scope, receive, self._watched(send, box, time.perf_counter()))
        finally:
            current_box.reset(token)

    def _watched(self, send: Send, box: RequestBox, arrived: float) -> Send:
        waits_for_token = False

        def noted(message: Event) -> Event:
            nonlocal waits_for_token, send
            if message["type"] == "http.response.start":
                box.response_started = True
                waits_for_token = box.outcome is not None and _is_stream(message)
                if box.settled:
                    if box.wants_usage:
                        send = with_original_tokens(send, box, message)
                    report = (REPORT_HEADER, report_header(box.settled))
                    return {**message, "headers": [*message.get("headers", ()), report]}
            elif waits_for_token and carries_token(message.get("body", b"")):
                waits_for_token = False
                seconds = time.perf_counter() - arrived
                self._metrics.time_to_first_token_seconds.labels(box.api, box.outcome).observe(seconds)
            return message

        async def watched(message: Event) -> None:
            nonlocal waits_for_token
            try:
                message = noted(message)
            except Exception as error:  # noqa: BLE001 - figures are no reason to break an answer
                waits_for_token = False
                self._log(error)
            await send(message)

        return watched

    def _log(self, error: Exception) -> None:
        """One traceback in all: a line per event would slow the server down when it is ill."""
        if not self._has_failed:
            logger.error("lam: a response cannot be watched; it is answered all the same", exc_info=error)
        self._has_failed = True


def carries_token(body: bytes) -> bool:
    """Whether a piece of an event stream holds generated text, reasoning or tool-call characters."""
    for line in body.splitlines():
        if line.startswith(b"data:"):
            try:
                event = json.loads(line[5:])
            except ValueError:
                continue
            if isinstance(event, dict) and _event_has_token(event):
                return True
    return False


def _event_has_token(event: dict[str, Any]) -> bool:
    if "choices" in event:
        choices = event["choices"]
        return isinstance(choices, list) and any(
            isinstance(choice, dict) and _has_any(choice.get("delta"), *_TEXT_OF_DELTA) for choice in choices
        )
    kind = event.get("type")
    if not isinstance(kind, str):
        return False
    if kind == "content_block_delta":
        return _has_any(event.get("delta"), *_TEXT_OF_BLOCK)
    if kind == "content_block_start":
        return _has_any(event.get("content_block"), "name")
    if kind == "response.output_item.added":
        return _has_any(event.get("item"), "name")
    return kind.startswith("response.") and kind.endswith(".delta") and bool(event.get("delta"))


def _has_any(value: Any, *keys: str) -> bool:
    return isinstance(value, dict) and any(value.get(key) for key in keys)


def _api_of(scope: Scope) -> Api:
    path = path_of(scope)
    return next((api for prefix, api in _API_OF_PATH if path.startswith(prefix)), "chat")


def _is_stream(message: Event) -> bool:
    kind = header_of(message.get("headers", ()), "content-type")
    return kind is not None and kind.startswith("text/event-stream")
