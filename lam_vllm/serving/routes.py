"""The routes under /v1/lam, where vLLM's own API key guards them."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict

import lam_vllm
from lam_vllm.config import ALGORITHM, CompactorConfig
from lam_vllm.errors import OptionError
from lam_vllm.messages import LOOK_UP_TOOL
from lam_vllm.serving.lifespan import lifespan
from lam_vllm.serving.middleware import OPTIONS_HEADER, SALT_HEADER
from lam_vllm.serving.options import Mode, Options, request_options
from lam_vllm.serving.service import Service
from lam_vllm.serving.warming import Warmed
from lam_vllm.serving.work import removed_text
from lam_vllm.types import Compaction

_HINT = (
    "{} requests held no tool results but long user messages after assistant messages: if your agent sends tool output "
    'as user messages, let it send the option observations: "tool+user"'
)


class EncoderStatus(BaseModel):
    """The encoder and its worker process, or why there is none. `guard_band` is a difference in cosine."""

    name: str | None = None
    fingerprint: str | None = None
    reason: str
    fast_pass: str | None = None
    fast_pass_reason: str | None = None
    guard_band: float | None = None
    threads: int | None = None
    process: int | None = None
    restarts: int = 0


class Status(BaseModel):
    """How this process was started and what it has counted since."""

    version: str
    vllm_version: str
    algorithm: int
    process: int
    switched_on: bool
    default: Mode
    profile: str | None
    config: CompactorConfig
    store: bool
    encoder: EncoderStatus
    requests: dict[str, float]
    prompt_tokens_original: dict[str, float]
    prompt_tokens_prefilled: dict[str, float]
    tokens_removed: dict[str, float]
    prefix_breaks: dict[str, float]
    guard_band_violations: float
    memo_bytes: int
    store_bytes: int
    hint: str | None


class DryRun(BaseModel):
    """Messages to compact without generating anything. `lam` and `cache_salt` are the fields of a chat request."""

    model_config = ConfigDict(extra="forbid")

    messages: list[dict[str, Any]]
    lam: Any = None
    cache_salt: str | None = None


class WarmRequest(BaseModel):
    """What is about to arrive: a request's messages, or the text of one tool result of a conversation to come."""

    model_config = ConfigDict(extra="forbid")

    messages: list[dict[str, Any]] | None = None
    text: str | None = None
    lam: Any = None
    cache_salt: str | None = None
    wait: bool = False


class RecordedDecision(BaseModel):
    """One replacement, and the id of the text it removed where that text is kept."""

    decision: dict[str, Any]
    record: str | None


class DryRunResult(BaseModel):
    """What the prompt would hold, and why."""

    messages: list[dict[str, Any]]
    decisions: list[RecordedDecision]
    report: dict[str, Any]
    config: CompactorConfig


class Record(BaseModel):
    """One piece of removed text."""

    id: str
    text: str


class Switch(BaseModel):
    """The run-time switch: False stops all compaction in this process at once, whatever requests ask for."""

    model_config = ConfigDict(extra="forbid")

    enabled: bool


class _AsciiResponse(JSONResponse):  # type: ignore[misc] # fastapi is not looked at
    """JSON in ASCII: a client's text may hold a lone surrogate, and UTF-8 has no place for one."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content).encode("ascii")


def make_router() -> APIRouter:
    """A new router with every route."""
    router = APIRouter(prefix="/v1/lam", tags=["lam"], default_response_class=_AsciiResponse, lifespan=lifespan)
    for path, handler, method in (
        ("/status", status, "GET"),
        ("/compact", compact, "POST"),
        ("/warm", warm, "POST"),
        ("/records/{identity}", record, "GET"),
        ("/tool", tool, "GET"),
        ("/enabled", switch, "POST"),
    ):
        router.add_api_route(path, handler, methods=[method])
    return router


async def status(http: Request) -> Status:
    """What is loaded, what applies to a request that says nothing, and the counters of this process."""
    service: Service = http.app.state.lam
    default, count = service.settings.options, service.metrics.counts
    compactors, suspects = service.handler.compactors, service.admission.accounting.looked_like_tool_user
    config = compactors.resolved(default.config)
    return Status(
        version=lam_vllm.__version__,
        vllm_version=service.vllm_version,
        algorithm=ALGORITHM,
        process=os.getpid(),
        switched_on=service.admission.enabled,
        default=default.mode,
        profile=config.profile,
        config=config,
        store=default.store,
        encoder=_encoder_status(service),
        requests=count("requests"),
        prompt_tokens_original=count("prompt_tokens_original"),
        prompt_tokens_prefilled=count("prompt_tokens_prefilled"),
        tokens_removed=count("tokens_removed"),
        prefix_breaks=count("prefix_breaks"),
        memo_bytes=sum(compactors.memo_bytes().values()),
        guard_band_violations=sum(count("guard_band_violations").values()),
        store_bytes=service.handler.records.bytes_used,
        hint=_HINT.format(suspects) if suspects else None,
    )


def _encoder_status(service: Service) -> EncoderStatus:
    encoder, client = service.encoder, service.handler.compactors.client
    if encoder is None:
        return EncoderStatus(reason="none is configured: --lam-encoder or LAM_ENCODER names one")
    status = EncoderStatus(name=encoder.name, fingerprint=encoder.fingerprint, reason="configured")
    if client is None:
        return status
    facts, fast = client.facts, client.facts.fast
    measured = {"fast_pass": fast.way.label, "fast_pass_reason": fast.reason, "guard_band": fast.guard_band}
    running = {"threads": facts.threads, "process": facts.process, "restarts": client.restarts}
    return status.model_copy(update={**measured, **running})


async def compact(body: DryRun, http: Request) -> DryRunResult:
    """The compaction of these messages, computed from nothing and counted nowhere.

    400 on a bad option, 500 when the compaction fails.
    """
    service: Service = http.app.state.lam
    options, salt = _options(service, body.lam, http), _salt(body.cache_salt, http)
    lane = service.handler.compactors.lane(options.config)
    try:
        return await service.pool.submit(lambda: _dry_run(service, options, body.messages, salt), lane)
    except Exception as error:  # noqa: BLE001 - whatever is wrong in here, the client gets JSON
        service.handler.log(error)
        raise HTTPException(500, f"the compaction failed: {type(error).__name__}; see the server's log") from None


async def warm(body: WarmRequest, http: Request, response: Response) -> Warmed:
    """Have ready what admission of these messages, or of one tool result, will need. 202 before it is done.

    400 on a bad option, or unless exactly one of `messages` and `text` is given; 500 when the work fails.
    """
    service: Service = http.app.state.lam
    if (body.messages is None) == (body.text is None):
        raise HTTPException(400, "exactly one of messages and text is needed")
    options, salt = _options(service, body.lam, http), _salt(body.cache_salt, http)
    if not service.admission.enabled or options.mode == "off":
        return Warmed(done=True)
    work = await service.warming.begin(options.config, body.messages, body.text, salt)
    if not body.wait:
        response.status_code = 202
        return Warmed(done=False)
    try:
        return await asyncio.shield(work)  # a client that goes away does not end it
    except Exception as error:  # noqa: BLE001 - whatever is wrong in here, the client gets JSON
        raise HTTPException(500, f"warming failed: {type(error).__name__}; see the server's log") from None


def _options(service: Service, field: Any, http: Request) -> Options:
    try:
        return request_options(
            service.settings.options,
            header=http.headers.get(OPTIONS_HEADER),
            field=field,
            has_encoder=service.encoder is not None,
        )
    except OptionError as error:
        raise HTTPException(400, str(error)) from None


def _salt(field: str | None, http: Request) -> str:
    return field or http.headers.get(SALT_HEADER) or ""


def _dry_run(service: Service, options: Options, messages: list[dict[str, Any]], salt: str) -> DryRunResult:
    # Without the memo: a dry run must not use up what the next real request would count as new.
    compactor = service.handler.compactors.get(options.config)
    compaction = compactor.compact(messages, salt=salt, use_memo=False)
    decisions = [
        RecordedDecision(
            decision=decision._asdict(),
            record=service.handler.records.put(salt, text) if text and options.store else None,
        )
        for decision in compaction.decisions
        for text in [removed_text(messages, decision)]
    ]
    return DryRunResult(
        messages=compaction.messages, decisions=decisions, report=_report(compaction), config=compactor.config
    )


def _report(compaction: Compaction) -> dict[str, Any]:
    return {**asdict(compaction.report), "saved_tokens": compaction.report.saved_tokens}


async def record(identity: str, http: Request) -> Record:
    """Removed text by its id and the salt it was sent under. 404 when unknown, whatever the cause."""
    service: Service = http.app.state.lam
    text = service.handler.records.get(http.headers.get(SALT_HEADER) or "", identity)
    service.metrics.lookups.labels("unknown" if text is None else "found").inc()
    if text is None:
        raise HTTPException(404, "no such record")
    return Record(id=identity, text=text)


async def tool() -> dict[str, Any]:
    """An OpenAI function schema of a look-up tool, for clients that want to offer the model one."""
    integer = {"type": "integer", "minimum": 1}
    return {
        "type": "function",
        "function": {
            "name": LOOK_UP_TOOL,
            "description": "Show again lines of an earlier tool result of this conversation, as they were printed.",
            "parameters": {
                "type": "object",
                "properties": {
                    "result": {**integer, "description": "Which tool result, counted from 1 at the start."},
                    "first_line": {**integer, "description": "First line to show, counted from 1 in that result."},
                    "last_line": {**integer, "description": "Last line to show, included."},
                },
                "required": ["result", "first_line", "last_line"],
                "additionalProperties": False,
            },
        },
    }


async def switch(body: Switch, http: Request) -> Switch:
    """Set the run-time switch of this process; returns what it is now."""
    service: Service = http.app.state.lam
    service.admission.enabled = body.enabled
    return Switch(enabled=service.admission.enabled)
