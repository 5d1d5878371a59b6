"""Requests of a bounded size and depth, and answers that every client can read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel

MAX_BODY_BYTES = 16_000_000
"""A body is read, and its answer written, on the event loop: that long nothing else is answered."""
MAX_FIELDS = 32
"""Of the body itself: each one that does not exist is an error of its own."""
MAX_DEPTH = 100
MAX_PROBLEM_CHARACTERS = 2_000
_CONTAINERS = (dict, list)


class Problem(BaseModel):
    """Why a request was not answered."""

    detail: str


class AsciiResponse(JSONResponse):  # type: ignore[misc] # fastapi is not looked at
    """JSON in ASCII: a client's text may hold a lone surrogate, and UTF-8 has no place for one."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return json.dumps(content).encode("ascii")


class _BoundedRequest(Request):  # type: ignore[misc] # fastapi is not looked at
    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            pieces, size = [], 0
            async for piece in self.stream():
                size += len(piece)
                if size > MAX_BODY_BYTES:
                    raise HTTPException(413, f"the body is longer than {MAX_BODY_BYTES} bytes")
                pieces.append(piece)
            self._body = b"".join(pieces)
        return self._body

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            self._json = read_json(await self.body())
        return self._json


class BoundedRoute(APIRoute):  # type: ignore[misc] # fastapi is not looked at
    """A route whose bodies are bounded, and that answers a wrong one itself.

    The handlers of the surrounding app would send back what they were sent, and fail where that cannot be written.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """What answers a request."""
        answer = super().get_route_handler()

        async def bounded(request: Request) -> Response:
            try:
                response: Response = await answer(_BoundedRequest(request.scope, request.receive))
            except RequestValidationError as error:
                return _refusal(422, "; ".join(map(_words, error.errors()[:5])))
            except HTTPException as error:
                return _refusal(error.status_code, str(error.detail))
            return response

        return bounded


def read_json(data: bytes) -> Any:
    """The value of a JSON body: strict, in numbers that JSON can write, no deeper than `MAX_DEPTH`.

    Raises:
        HTTPException: it is not such a value; 400.
    """
    try:
        value = json.loads(data, parse_constant=_not_json, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the body is not JSON: {error}") from None
    if isinstance(value, dict) and len(value) > MAX_FIELDS:
        raise HTTPException(400, f"the body has more than {MAX_FIELDS} fields")
    level = _inside([[value]])
    for _ in range(MAX_DEPTH):
        level = _inside(level)
        if not level:
            return value
    raise HTTPException(400, f"the body is nested more than {MAX_DEPTH} deep")


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The refusals of a route, as OpenAPI wants them."""
    return {code: {"model": Problem, "description": HTTPStatus(code).phrase} for code in codes}


def _inside(level: list[Any]) -> list[Any]:
    """The objects and arrays that stand in these ones."""
    return [
        value
        for container in level
        for value in (container.values() if type(container) is dict else container)
        if type(value) in _CONTAINERS
    ]


def _not_json(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:40]} is out of range")
    return number


def _words(error: Any) -> str:
    """One error of a body: where, and what is wrong there; never the value."""
    return ".".join(map(str, error["loc"])) + ": " + str(error["msg"])


def _refusal(code: int, detail: str) -> Response:
    return AsciiResponse({"detail": detail[:MAX_PROBLEM_CHARACTERS]}, code)
