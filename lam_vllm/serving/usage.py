"""Original prompt tokens beside the prefilled ones in the final usage of Chat Completions and Responses.

Clients that compact by themselves do so by the prompt tokens they are told; this field says how long the conversation
is that they sent. The Messages API is left alone: it splits the prompt over three fields by what the cache held, so
there is no one figure to stand beside; the header x-lam-report has both figures on every API.
"""

from __future__ import annotations

import json
from typing import Any

from lam_vllm.serving.asgi import Event, Send, header_of
from lam_vllm.serving.box import RequestBox

FIELD = "original_prompt_tokens"

_WITH_USAGE = ("response.completed", "response.incomplete")


def with_original_tokens(send: Send, box: RequestBox, start: Event) -> Send:
    """A `send` for the response that begins with `start`, which adds the field to its final usage.

    It is `send` itself where the response can hold no such usage, or none that can be read: an error, a compressed
    body, an API without the field.
    """
    headers = start.get("headers", ())
    kind = header_of(headers, "content-type") or ""
    encoded = header_of(headers, "content-encoding") is not None
    if box.api not in ("chat", "responses") or start.get("status") != 200 or encoded:
        return send
    if kind.startswith("text/event-stream"):
        return _EventStream(send, box)
    return _JsonBody(send, box) if kind.startswith("application/json") else send


class _EventStream:
    """Hands on every line of a stream the moment its last byte is there; only the one with the final usage changes."""

    def __init__(self, send: Send, box: RequestBox) -> None:
        self._send = send
        self._box = box
        self._open = b""

    async def __call__(self, message: Event) -> None:
        if message["type"] == "http.response.body":
            lines = self._lines(message.get("body", b""), ends=not message.get("more_body", False))
            message = {**message, "body": b"".join(_line_with_field(line, self._box) for line in lines)}
        await self._send(message)

    def _lines(self, piece: bytes, *, ends: bool) -> list[bytes]:
        """The lines that this piece completes. What it leaves open waits for the next one."""
        lines = (self._open + piece).splitlines(keepends=True)
        is_open = bool(lines) and not ends and not lines[-1].endswith((b"\r", b"\n"))
        self._open = lines.pop() if is_open else b""
        return lines


class _JsonBody:
    """Holds an answer until its end, since its length is said before it."""

    def __init__(self, send: Send, box: RequestBox) -> None:
        self._send = send
        self._box = box
        self._held: list[Event] = []
        self._is_done = False

    async def __call__(self, message: Event) -> None:
        if self._is_done:
            await self._send(message)
            return
        self._held.append(message)
        is_body = message["type"] == "http.response.body"
        if message["type"] == "http.response.start" or (is_body and message.get("more_body", False)):
            return
        self._is_done = True
        for each in _whole(self._held, self._box) if is_body else self._held:
            await self._send(each)


def _whole(held: list[Event], box: RequestBox) -> list[Event]:
    """The messages of a complete answer: as they came, or two with the field in the body and its length corrected."""
    start, *pieces = held
    changed = _json_with_field(b"".join(piece.get("body", b"") for piece in pieces), box)
    if changed is None:
        return held
    length = str(len(changed)).encode("ascii")
    headers = [(key, length if key.lower() == b"content-length" else value) for key, value in start.get("headers", ())]
    return [{**start, "headers": headers}, {"type": "http.response.body", "body": changed}]


def _line_with_field(line: bytes, box: RequestBox) -> bytes:
    # vLLM writes the data of an event in one line, so that a line that is not JSON by itself is none of its usages.
    if not line.startswith(b"data:") or b'"usage"' not in line:
        return line
    text = line.rstrip(b"\r\n")
    changed = _json_with_field(text[len(b"data:") :], box)
    return line if changed is None else b"data: " + changed + line[len(text) :]


def _json_with_field(body: bytes, box: RequestBox) -> bytes | None:
    """The JSON with the field in its final usage; None if it has none, or could not be written again as it is."""
    try:
        answer = json.loads(body.decode("utf-8"))
        usage = _final_usage(answer)
        prompt = next((usage[key] for key in ("prompt_tokens", "input_tokens") if key in usage), None)
        if not isinstance(prompt, int):
            return None
        usage[FIELD] = prompt + sum(entry.original_tokens - entry.prefilled_tokens for entry in box.settled)
        return json.dumps(answer, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")
    except (ValueError, RecursionError):
        return None


def _final_usage(answer: Any) -> dict[str, Any]:
    """The usage that no later event of the answer replaces, empty if there is none."""
    if not isinstance(answer, dict):
        return {}
    if answer.get("type") in _WITH_USAGE:
        answer = answer.get("response")
    elif answer.get("object") == "chat.completion.chunk" and answer.get("choices") != []:
        return {}  # usage so far, beside text
    usage = answer.get("usage") if isinstance(answer, dict) else None
    return usage if isinstance(usage, dict) else {}
