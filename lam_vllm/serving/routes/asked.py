"""What every route wants to know of a request, and how long it may take."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

from fastapi import HTTPException, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from lam_vllm.errors import OptionError
from lam_vllm.pool import Lane, Piece
from lam_vllm.serving import salt
from lam_vllm.serving.asgi import header_of
from lam_vllm.serving.middleware import OPTIONS_HEADER, SALT_HEADER
from lam_vllm.serving.options import Options, request_options
from lam_vllm.serving.service import Service
from lam_vllm.stores import StoreError

T = TypeVar("T")
MAX_MESSAGES = 65_536


def _all_objects(messages: list[Any]) -> list[Any]:
    for place, message in enumerate(messages):
        if not isinstance(message, dict):
            raise ValueError(f"message {place} is not an object")
    return messages


# Not list[dict]: of a million wrong messages that would make a million errors, and what is inside is for the core.
Messages = Annotated[
    list[Any],
    Field(max_length=MAX_MESSAGES),
    AfterValidator(_all_objects),
    WithJsonSchema({"type": "array", "items": {"type": "object"}, "maxItems": MAX_MESSAGES}),
]


class Asked(BaseModel):
    """What a body says beside its texts: `model`, `lam` and `cache_salt` are the fields of a chat request."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    lam: Any = None
    cache_salt: str | None = None


def service_of(http: Request) -> Service:
    """The service behind the routes."""
    service: Service = http.app.state.lam
    return service


def options_of(body: Asked, http: Request) -> Options:
    """What applies to this request.

    Raises:
        HTTPException: an option is wrong; 400.
    """
    service, header = service_of(http), header_of(http.headers.raw, OPTIONS_HEADER)
    default = service.settings.rollout.default_for(body.model, service.settings.options)
    has_basis = service.handler.compactors.has_basis
    try:
        return request_options(
            default, header=header, field=body.lam, has_encoder=service.encoder is not None, has_basis=has_basis
        )
    except OptionError as error:
        raise HTTPException(400, str(error)) from None


def salt_of(body: Asked | None, http: Request) -> str:
    """The tenant's salt, from the body or the header; "" where there is none."""
    return salt.salt_of(body and body.cache_salt, header_of(http.headers.raw, SALT_HEADER))


async def in_lane(service: Service, work: Callable[[], T], lane: Lane) -> T:
    """What `work` returns, from a thread of this lane. What has not begun when this ends never will.

    Raises:
        HTTPException, Exception: as `within_limit`.
    """
    piece = Piece(work)
    waiting = asyncio.ensure_future(service.pool.submit(piece, lane))
    try:
        return await within_limit(service, waiting)
    finally:
        if not piece.begun:
            waiting.cancel()


async def within_limit(service: Service, work: Awaitable[T]) -> T:
    """What `work` returns, within the time limit of a request and before the server goes down. Never ends a task.

    Raises:
        HTTPException: it takes longer, or the server stops; 503.
        Exception: whatever `work` raises.
    """
    seconds = service.settings.limits.time_limit_seconds
    task, stopping = asyncio.ensure_future(work), asyncio.ensure_future(service.stopping.wait())
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # perhaps nobody else will ask
    try:
        await asyncio.wait([task, stopping], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
    if task.done():
        return task.result()
    if service.stopping.is_set():
        raise HTTPException(503, "the server is going down")
    raise HTTPException(503, f"not done within {seconds:g} seconds")


def store_ill(service: Service, error: StoreError) -> HTTPException:
    """What a client is told of a store that cannot answer: 503. What failed is logged: it may name a file or a host."""
    service.handler.log(error, "the store cannot answer")
    return HTTPException(503, "the store cannot answer now; see the server's log")
