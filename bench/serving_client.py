"""What a benchmark asks of a server with the plugin, and what the client sees: one turn, one warm call, one prompt."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from lam_vllm.evaluation.live.dialects import dialect
from lam_vllm.types import Message

TIMEOUT_SECONDS = 120.0
KEEP_SECONDS = 4.0
"""Less than the server keeps a connection (5): none is used that it is about to close."""
_CHAT = dialect("chat")
_WINDOWS = re.compile(r'^lam:encoder_windows_total\{[^}]*source="(\w+)"[^}]*\} (\S+)$', re.MULTILINE)
_RESTARTS = re.compile(r"^lam:worker_restarts_total(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Answer:
    """One streamed turn by the client's clock, in seconds. `texts` are the times of pieces of text.

    `hook_seconds` is what the plugin reports, None without it; `error` says why the answer is not complete.
    """

    sent: float
    ended: float
    texts: Sequence[float] = ()
    output_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    hook_seconds: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the compactor: when it was sent, how long the server worked on it, and what it encoded."""

    sent: float
    ended: float
    seconds: float = 0.0
    encoded: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """The plugin's counters over all API servers: windows by where their embeddings came from, and restarts."""

    windows: Counter[str] = field(default_factory=Counter)
    restarts: int = 0


class Connection:
    """A client of the server at `url`, which keeps its connections for the next call unless `reconnect` is set."""

    def __init__(self, url: str, *, reconnect: bool = False) -> None:
        limits = httpx.Limits(max_keepalive_connections=0 if reconnect else None, keepalive_expiry=KEEP_SECONDS)
        self._http = httpx.Client(base_url=url, timeout=TIMEOUT_SECONDS, limits=limits)

    def model(self) -> str:
        """The name of the first model that is served."""
        return str(self._http.get("/v1/models").raise_for_status().json()["data"][0]["id"])

    def counts(self) -> Counts:
        """The plugin's counters; zeros without the plugin."""
        text = self._http.get("/metrics").raise_for_status().text
        windows: Counter[str] = Counter()
        for source, number in _WINDOWS.findall(text):
            windows[source] += int(float(number))
        return Counts(windows, sum(int(float(number)) for number in _RESTARTS.findall(text)))

    def encoder(self) -> dict[str, Any]:
        """The encoder as the server's status has it."""
        status: dict[str, Any] = self._http.get("/v1/lam/status").raise_for_status().json()
        return dict(status["encoder"])

    def ask(self, messages: Sequence[Message], model: str, salt: str, tokens: int) -> Answer:
        """A turn, answered with exactly so many tokens."""
        body = {
            **_CHAT.body(messages, tokens),
            "model": model,
            "cache_salt": salt,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
        }
        sent = time.perf_counter()
        try:
            with self._http.stream("POST", _CHAT.path, json=body) as response:
                if response.is_error:
                    response.read()
                    return Answer(sent, time.perf_counter(), error=f"{response.status_code}: {response.text[:200]}")
                return _read(sent, response)
        except (httpx.HTTPError, ValueError) as error:
            return Answer(sent, time.perf_counter(), error=f"{type(error).__name__}: {error}")

    def warm(self, messages: Sequence[Message], salt: str) -> Call:
        """What admission of these messages will need is ready when this returns."""
        sent = time.perf_counter()
        body = {"messages": messages, "cache_salt": salt, "wait": True}
        try:
            answer = self._http.post("/v1/lam/warm", json=body).raise_for_status().json()
        except (httpx.HTTPError, ValueError) as error:
            return Call(sent, time.perf_counter(), error=f"{type(error).__name__}: {error}")
        return Call(sent, time.perf_counter(), answer["seconds"], answer["encoded"])

    def prompt(self, messages: Sequence[Message], model: str, salt: str) -> Call:
        """The turn's way through the hook into token ids; nothing is generated."""
        sent = time.perf_counter()
        body, headers = {"model": model, "messages": messages}, {"x-lam-cache-salt": salt}
        response = self._http.post("/tokenize", json=body, headers=headers).raise_for_status()
        return Call(sent, time.perf_counter(), _hook_seconds(response) or 0.0)

    def close(self) -> None:
        """Close its connections."""
        self._http.close()


def _read(sent: float, response: httpx.Response) -> Answer:
    texts: list[float] = []
    usage: dict[str, Any] = {}
    for event in _events(response):
        if "error" in event:
            return Answer(sent, time.perf_counter(), error=str(event["error"])[:200])
        if _CHAT.shows_text(event):
            texts.append(time.perf_counter())
        usage = event.get("usage") or usage
    details = usage.get("prompt_tokens_details") or {}
    return Answer(
        sent,
        time.perf_counter(),
        texts,
        usage.get("completion_tokens", 0),
        usage.get("prompt_tokens", 0),
        details.get("cached_tokens") or 0,
        _hook_seconds(response),
        None if texts and usage else "the stream ended without text or token counts",
    )


def _events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        with suppress(json.JSONDecodeError):  # the last one says [DONE]
            if line.startswith("data:"):
                yield json.loads(line.removeprefix("data:"))


def _hook_seconds(response: httpx.Response) -> float | None:
    report = response.headers.get("x-lam-report")
    return json.loads(report)["milliseconds"] / 1000 if report else None
