"""The shapes of ASGI, and the two things that the plugin reads from a request's scope."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


def path_of(scope: Scope) -> str:
    """The path as the application's routes name it."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def header_of(headers: Iterable[tuple[bytes, bytes]], name: str) -> str | None:
    """The first header of this name, which is given in lower case, or None.

    It is read as UTF-8, which is what a client's body is written in, where it can be.
    """
    wanted = name.encode()
    for key, value in headers:
        if key.lower() == wanted:
            try:
                return value.decode()
            except UnicodeDecodeError:
                return value.decode("latin-1")
    return None
