"""POST /v1/lam/enabled: the run-time switch."""

from __future__ import annotations

from fastapi import HTTPException, Request
from pydantic import BaseModel, ConfigDict, StrictBool

from lam_vllm.serving.routes.asked import service_of


class SwitchState(BaseModel):
    """The run-time switch: False stops all compaction in this server at once, whatever requests ask for."""

    model_config = ConfigDict(extra="forbid")

    enabled: StrictBool


async def switch(body: SwitchState, http: Request) -> SwitchState:
    """Set the run-time switch of every process of this server; returns what it is now. 503 when it cannot be set."""
    switched = service_of(http).admission.switch
    try:
        switched.turn(body.enabled)
    except OSError as error:
        raise HTTPException(503, f"the switch cannot be set: {error.strerror}") from None
    return SwitchState(enabled=switched.on)
