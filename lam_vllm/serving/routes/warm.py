"""POST /v1/lam/warm: work ahead of a request."""

from __future__ import annotations

import asyncio

from fastapi import HTTPException, Request, Response

from lam_vllm.errors import EncoderError, WorkerLostError
from lam_vllm.serving.routes.asked import Asked, Messages, options_of, salt_of, service_of, within_limit
from lam_vllm.serving.warming import Warmed


class WarmRequest(Asked):
    """What is about to arrive: a request's messages, or the text of one tool result of a conversation to come."""

    messages: Messages | None = None
    text: str | None = None
    wait: bool = False


async def warm(body: WarmRequest, http: Request, response: Response) -> Warmed:
    """Have ready what admission of these messages, or of one tool result, will need. 202 before it is done.

    400 on a bad option, or unless exactly one of `messages` and `text` is given; with `wait` 503 when the encoder fails
    or is not done within the time limit, 500 when anything else does.
    """
    service = service_of(http)
    if (body.messages is None) == (body.text is None):
        raise HTTPException(400, "exactly one of messages and text is needed")
    options, salt = options_of(body, http), salt_of(body, http)
    if not service.admission.switch.on or options.mode == "off":
        return Warmed(done=True)
    beginning = asyncio.ensure_future(service.warming.begin(options.config, body.messages, body.text, salt))
    try:
        work = await within_limit(service, beginning)
    finally:
        beginning.cancel()  # a call that found no room holds its messages no longer
    if not body.wait:
        response.status_code = 202
        return Warmed(done=False)
    try:
        return await within_limit(service, work)  # a client that goes away does not end it
    except HTTPException:
        raise
    except (EncoderError, WorkerLostError) as error:
        raise HTTPException(503, f"warming failed: {error}") from None
    except Exception as error:  # noqa: BLE001 - whatever is wrong in here, the client gets JSON
        raise HTTPException(500, f"warming failed: {type(error).__name__}; see the server's log") from None
