"""The routes under /v1/lam, where the server's own API key guards them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter

from lam_vllm.serving.lifespan import lifespan
from lam_vllm.serving.middleware import OPTIONS_HEADER, SALT_HEADER
from lam_vllm.serving.routes.bounded import BoundedRoute, problems
from lam_vllm.serving.routes.compact import Compacted, compact
from lam_vllm.serving.routes.records import Deleted, Record, forget, record
from lam_vllm.serving.routes.search import search
from lam_vllm.serving.routes.status import Status, status
from lam_vllm.serving.routes.switch import SwitchState, switch
from lam_vllm.serving.routes.tool import tool
from lam_vllm.serving.routes.warm import warm
from lam_vllm.serving.search_answer import SearchAnswer
from lam_vllm.serving.warming import Warmed

_BODY = (400, 413, 422)
"""How a body is refused: not JSON or an option is wrong, too long, of another shape."""

_SALTED = (SALT_HEADER,)
_CHAT = (OPTIONS_HEADER, SALT_HEADER)

_ROUTES: tuple[tuple[str, str, Callable[..., Any], Any, tuple[int, ...], tuple[str, ...]], ...] = (
    ("GET", "/status", status, Status, (), ()),
    ("POST", "/compact", compact, Compacted, (*_BODY, 500, 503), _CHAT),
    ("POST", "/warm", warm, Warmed, (*_BODY, 500, 503), _CHAT),
    ("POST", "/search", search, SearchAnswer, (*_BODY, 404, 500, 503), _CHAT),
    ("GET", "/records/{identity}", record, Record, (404, 410, 503), _SALTED),
    ("DELETE", "/records", forget, Deleted, (503,), _SALTED),
    ("GET", "/tool", tool, dict[str, Any], (), ()),
    ("POST", "/enabled", switch, SwitchState, (*_BODY, 503), ()),
)
"""Method, path, handler, its answer, how it may refuse, and the headers that it reads."""


def make_router() -> APIRouter:
    """A new router with every route."""
    router = APIRouter(prefix="/v1/lam", tags=["lam"], route_class=BoundedRoute, lifespan=lifespan)
    for method, path, handler, answer, refusals, headers in _ROUTES:
        responses = problems(401, *refusals)
        if handler is warm:
            responses[202] = {"model": Warmed, "description": "Begun; the call does not wait for its end."}
        read = [{"name": name, "in": "header", "schema": {"type": "string"}} for name in headers]
        router.add_api_route(
            path,
            handler,
            methods=[method],
            response_model=answer,
            responses=responses,
            openapi_extra={"parameters": read} if read else None,
        )
    return router
