"""GET /v1/lam/status: how the server was started, and what it has counted since."""

from __future__ import annotations

import asyncio
import os
from typing import Literal

from fastapi import Request
from pydantic import BaseModel

import lam_vllm
from lam_vllm.config import ALGORITHM, CompactorConfig
from lam_vllm.serving.options import Mode
from lam_vllm.serving.routes.asked import service_of
from lam_vllm.serving.service import Service

_HINT = (
    "{} requests held no tool results but long user messages after assistant messages: if your agent sends tool output "
    'as user messages, let it send the option observations: "tool+user"'
)
_COUNTED = (
    "requests",
    "prompt_tokens_original",
    "prompt_tokens_prefilled",
    "tokens_removed",
    "prefix_breaks",
    "lookups",
    "store_errors",
    "guard_band_violations",
)


class EncoderStatus(BaseModel):
    """The encoder and its worker process, or why there is none. `guard_band` is a difference in cosine."""

    name: str | None = None
    fingerprint: str | None = None
    reason: str
    fast_pass: str | None = None
    fast_pass_reason: str | None = None
    guard_band: float | None = None
    device: str | None = None
    device_reason: str | None = None
    threads: int | None = None
    process: int | None = None
    restarts: int = 0


class StoreStatus(BaseModel):
    """Where removed text is kept.

    `kept` is what applies to a request that is compacted and says nothing of it; `url` is without password.
    """

    kept: bool
    kind: Literal["memory", "sqlite", "redis"]
    url: str | None
    bytes: int
    max_bytes: int
    retention_seconds: float


class IndexStatus(BaseModel):
    """What can be searched later, kept where removed text is, or in the worker's memory where the store is memory.

    `kept` is what applies to a request that is compacted and says nothing of it.
    """

    kept: bool
    bytes: int
    max_bytes: int


class Status(BaseModel):
    """How this server was started and what it has counted since.

    The counters, from `requests` to `guard_band_violations`, are sums over its `processes`. `memo_bytes`, `encoder` and
    `hint` are those of the process that answers, and so are `store_bytes` and `index` where the store is memory.
    """

    version: str
    vllm_version: str | None
    algorithm: int
    process: int
    processes: int
    switched_on: bool
    default: Mode
    profile: str | None
    config: CompactorConfig
    canary: float
    models: list[str]
    store: StoreStatus
    index: IndexStatus
    encoder: EncoderStatus
    requests: dict[str, float]
    prompt_tokens_original: dict[str, float]
    prompt_tokens_prefilled: dict[str, float]
    tokens_removed: dict[str, float]
    prefix_breaks: dict[str, float]
    lookups: dict[str, float]
    store_errors: dict[str, float]
    guard_band_violations: float
    memo_bytes: int
    store_bytes: int
    hint: str | None


async def status(http: Request) -> Status:
    """What is loaded, what applies to a request that says nothing, and the counters of this server."""
    service = service_of(http)
    default, rollout = service.settings.options, service.settings.rollout
    # In a thread that no other work can take: with several processes files are read, and health checks ask here.
    counted = await asyncio.to_thread(service.metrics.counters, *_COUNTED)
    violations = counted.pop("guard_band_violations")
    compactors, suspects = service.handler.compactors, service.admission.accounting.looked_like_tool_user
    config, store = compactors.resolved(default.config), _store_status(service)
    return Status(
        version=lam_vllm.__version__,
        vllm_version=service.vllm_version,
        algorithm=ALGORITHM,
        process=os.getpid(),
        processes=service.processes,
        switched_on=service.admission.switch.on,
        default=default.mode,
        profile=config.profile,
        config=config,
        canary=rollout.canary,
        models=sorted(rollout.models),
        store=store,
        index=_index_status(service, config),
        encoder=_encoder_status(service),
        guard_band_violations=sum(violations.values()),
        **counted,
        memo_bytes=sum(compactors.memo_bytes().values()),
        store_bytes=store.bytes,
        hint=_HINT.format(suspects) if suspects else None,
    )


def _store_status(service: Service) -> StoreStatus:
    store = service.settings.store
    return StoreStatus(
        kept=service.settings.options.store,
        kind=store.kind,
        url=None if store.url is None else store.label,
        bytes=service.handler.records.bytes_used,
        max_bytes=store.max_bytes,
        retention_seconds=store.retention_seconds,
    )


def _index_status(service: Service, config: CompactorConfig) -> IndexStatus:
    compactors, settings = service.handler.compactors, service.settings
    embeds = compactors.client is not None and config.profile != "exact"
    return IndexStatus(
        kept=settings.options.store and embeds,
        bytes=compactors.index_bytes,
        max_bytes=settings.store.max_bytes if compactors.client is not None else 0,
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
    running = {
        "device": facts.device,
        "device_reason": facts.device_reason,
        "threads": facts.threads,
        "process": facts.process,
        "restarts": client.restarts,
    }
    return status.model_copy(update={**measured, **running})
