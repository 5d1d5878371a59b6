"""GET /v1/lam/records/{id} and DELETE /v1/lam/records: what is kept, of one tenant only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fastapi import HTTPException, Request, Response
from pydantic import BaseModel

from lam_vllm.serving.routes.asked import in_lane, salt_of, service_of, store_ill
from lam_vllm.serving.routes.bounded import AsciiResponse
from lam_vllm.serving.service import Service
from lam_vllm.stores import StoreError

T = TypeVar("T")


class Record(BaseModel):
    """One piece of removed text."""

    id: str
    text: str


class Deleted(BaseModel):
    """How many pieces of text were deleted. What could be searched is not counted."""

    deleted: int


async def record(identity: str, http: Request) -> Response:
    """Removed text by its id and the salt it was sent under.

    410 when the id was given out under this salt and its text is not kept any more, 404 for any other id; 503 while the
    store cannot be read.
    """
    service, salt = service_of(http), salt_of(None, http)
    records, lookups = service.handler.records, service.metrics.lookups
    found = await _asked(service, lambda: records.look_up(salt, identity))
    if found.text is not None:
        lookups.labels("found").inc()
        return AsciiResponse(Record(id=identity, text=found.text).model_dump())
    lookups.labels("expired" if found.known else "unknown").inc()
    raise HTTPException(410, "this text is not kept any more") if found.known else HTTPException(404, "no such record")


async def forget(http: Request) -> Deleted:
    """Delete the text and the indexes kept of one tenant: of the salt in the header, without it of those who send none.

    503 while the store cannot be written: nothing, or not everything, was deleted.
    """
    service, salt = service_of(http), salt_of(None, http)

    def forgotten() -> int:
        try:
            return service.handler.records.forget(salt)
        finally:
            service.handler.compactors.forget(salt)  # what waits in the worker would be written later

    return Deleted(deleted=await _asked(service, forgotten))


async def _asked(service: Service, question: Callable[[], T]) -> T:
    """The store's answer, from a thread: it may be a file or another host."""
    try:
        return await in_lane(service, question, "store")
    except StoreError as error:
        raise store_ill(service, error) from None
