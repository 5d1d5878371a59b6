"""The few HTTP calls that a replay makes of a running server."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from lam_vllm.errors import LamError, OptionError
from lam_vllm.evaluation.live.dialects import Dialect, Usage

TIMEOUT_SECONDS = 600.0
_PREFIX_BREAK = re.compile(r'^lam:prefix_breaks_total\{(?:.*,)?cause="(\w+)".*\} (\S+)$', re.MULTILINE)


class ServerError(LamError):
    """A server cannot be reached (`status` None), or refused a request; names it and gives its words."""

    def __init__(self, message: str, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)


class PromptTooLongError(ServerError):
    """The server refused a prompt because it does not fit into the model's context."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one streamed request showed. `ttft_seconds` is None where no text came, `report` empty with no plugin."""

    usage: Usage
    ttft_seconds: float | None
    report: Mapping[str, Any] = field(default_factory=dict)


class Client:
    """A server at `url`; `api_key` goes with every request.

    Raises:
        OptionError: the URL is not one of HTTP.
    """

    def __init__(self, url: str, api_key: str | None = None) -> None:
        if not url.startswith(("http://", "https://")):
            raise OptionError("url", url, "http://HOST:PORT")
        self.url = url.rstrip("/").removesuffix("/v1")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def model(self) -> str:
        """The name of the first model that is served."""
        return str(self.get_json("/v1/models")["data"][0]["id"])

    def get_json(self, path: str) -> Any:
        """The JSON document at `path`."""
        with self._open(Request(self.url + path, headers=self._headers)) as response:
            return json.loads(response.read())

    def prefix_breaks(self) -> Counter[str]:
        """Broken prefixes since the server started, by cause, over all of its processes."""
        with self._open(Request(self.url + "/metrics", headers=self._headers)) as response:
            text = response.read().decode()
        breaks: Counter[str] = Counter()
        for cause, count in _PREFIX_BREAK.findall(text):
            breaks[cause] += int(float(count))
        return breaks

    def stream(self, dialect: Dialect, body: Mapping[str, Any], headers: Mapping[str, str]) -> Answer:
        """Send a streamed request and read it to its end; time runs from before it is sent.

        Raises:
            PromptTooLongError: the prompt does not fit.
            ServerError: anything else that is not a complete answer.
        """
        data = json.dumps({**body, "stream": True}).encode()
        sent = {**self._headers, "Content-Type": "application/json", **headers}
        begin = time.perf_counter()
        with self._open(Request(self.url + dialect.path, data=data, headers=sent)) as response:
            report = json.loads(response.headers.get("x-lam-report") or "{}")
            ttft, usage = None, None
            for event in _events(response):
                if ttft is None and dialect.shows_text(event):
                    ttft = time.perf_counter() - begin
                usage = dialect.usage(event) or usage
        if usage is None:
            raise ServerError(f"{self.url}{dialect.path}: the stream ended without token counts")
        return Answer(usage, ttft, report)

    def _open(self, request: Request) -> Any:
        try:
            return urlopen(request, timeout=TIMEOUT_SECONDS)
        except HTTPError as error:
            with error:
                words = error.read().decode(errors="replace")
            kind = PromptTooLongError if error.code == 400 and "context length" in words else ServerError
            raise kind(f"{request.full_url}: {error.code}: {words[:500]}", error.code) from None
        except (URLError, OSError, HTTPException) as error:
            raise ServerError(f"{request.full_url}: {getattr(error, 'reason', error)}") from None


def _events(stream: IO[bytes]) -> Iterator[dict[str, Any]]:
    """The JSON values of a stream of server-sent events.

    Raises:
        ServerError: an event tells of an error.
    """
    for line in stream:
        data = line.removeprefix(b"data:").strip()
        if not line.startswith(b"data:") or data == b"[DONE]":
            continue
        event = json.loads(data)
        if event.get("error") or event.get("type") in ("error", "response.failed"):
            raise ServerError(f"the stream broke off: {data.decode()[:500]}")
        yield event
