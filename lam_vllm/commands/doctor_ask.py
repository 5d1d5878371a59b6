"""One HTTP request of the doctor: the answer, whatever it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from lam_vllm.errors import OptionError

TIMEOUT_SECONDS = 60.0
MOST_BYTES = 16_000_000
"""More of an answer is not read: the address may be anybody's."""

_CONTROLS = frozenset(map(chr, (*range(32), 127)))


class _NoRedirects(HTTPRedirectHandler):
    """A key is for the address that was given, not for wherever that one points to."""

    def redirect_request(self, *_arguments: Any) -> None:
        """Never: the redirect itself is the answer."""


_OPENER = build_opener(_NoRedirects)


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. `status` is None where nothing did, and `text` then says why; `server` is the header of it."""

    status: int | None
    text: str
    server: str = ""

    @property
    def json(self) -> dict[str, Any] | None:
        """The JSON object of a 200, else None."""
        if self.status != 200:
            return None
        try:
            value = json.loads(self.text)
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None


class Asked:
    """The server at `url`; `api_key` goes with every request, and an answer is waited for so long.

    Raises:
        OptionError: the URL is not one of HTTP, or the key is no line of text.
    """

    def __init__(self, url: str, api_key: str | None = None, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        if not url.startswith(("http://", "https://")):
            raise OptionError("url", url, "http://HOST:PORT")
        if api_key and not _CONTROLS.isdisjoint(api_key):
            raise OptionError("api-key", "(not shown)", "one line of text")  # the error of a request would show it
        self.url = url.rstrip("/").removesuffix("/v1")
        self.has_key = bool(api_key)
        self._timeout = timeout_seconds
        self._headers = {"Authorization": f"Bearer {_in_bytes(api_key)}"} if api_key else {}

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Reply:
        """The answer to a GET of `path`, or to a POST of `body` as JSON. Raises nothing."""
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers if data is None else {**self._headers, "Content-Type": "application/json"}
        try:
            with _OPENER.open(Request(self.url + path, data, headers), timeout=self._timeout) as answer:
                return _reply(answer, answer.status)
        except HTTPError as error:
            with error:
                return _reply(error, error.code)
        except (URLError, OSError, HTTPException, ValueError) as error:
            return Reply(None, str(getattr(error, "reason", error)))

    def ask_held(self, path: str, times: int) -> Iterator[Reply]:
        """Answers to GETs of `path`, each on a connection of its own that stays open until the last one is through.

        Of a server's processes the one with fewest open connections takes the next, so that these meet all of them.
        Past a proxy of the environment; ends early where a connection fails.
        """
        address = urlsplit(self.url)
        kind = HTTPSConnection if address.scheme == "https" else HTTPConnection
        with ExitStack() as held:
            for _ in range(times):
                connection = held.enter_context(closing(kind(address.netloc, timeout=self._timeout)))
                try:
                    connection.request("GET", address.path + path, headers=self._headers)
                    answer = connection.getresponse()
                    yield _reply(answer, answer.status)
                except (OSError, HTTPException):
                    return


def _in_bytes(key: str) -> str:
    """The key as UTF-8, in the way in which `http.client` takes bytes of a header."""
    return key.encode(errors="surrogateescape").decode("latin-1")


def _reply(answer: Any, status: int) -> Reply:
    text = answer.read(MOST_BYTES).decode(errors="replace")
    return Reply(status, text, answer.headers.get("server") or "")
