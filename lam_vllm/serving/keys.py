"""The keys of a server that has the routes alone: asked for as vLLM asks for its own."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping

from fastapi.responses import JSONResponse

from lam_vllm.serving.asgi import App, Receive, Scope, Send, path_of

KEY_VARIABLES = ("LAM_API_KEY", "VLLM_API_KEY")
_GUARDED = "/v1"


class KeyGuard:
    """Pure ASGI: lets nobody under /v1 who does not show one of the keys. /health and /metrics are for everybody."""

    def __init__(self, app: App, *, keys: Iterable[str]) -> None:
        self._app = app
        self._hashes = [_hash(key.encode(errors="surrogateescape")) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "http" and path_of(scope).startswith(_GUARDED) and not self._knows(scope):
            await JSONResponse({"error": "Unauthorized"}, 401)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _knows(self, scope: Scope) -> bool:
        """Whether the request shows a key. Compared as hashes, each with every one: the time tells nothing."""
        given = next((value for name, value in scope["headers"] if name.lower() == b"authorization"), b"")
        scheme, _, shown = given.partition(b" ")
        found = _hash(shown)
        matches = [secrets.compare_digest(found, known) for known in self._hashes]
        return scheme.lower() == b"bearer" and any(matches)


def server_keys(given: Iterable[str], environment: Mapping[str, str]) -> list[str]:
    """The keys of the command line, else that of the first variable that names one; none where nobody does."""
    named = [key for key in given if key]
    return named or [environment[name] for name in KEY_VARIABLES if environment.get(name)][:1]


def _hash(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
