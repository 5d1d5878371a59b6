"""POST /v1/lam/compact: beside an engine a dry run, without one what the service is for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

from fastapi import BackgroundTasks, HTTPException, Request, Response
from pydantic import BaseModel

from lam_vllm.config import CompactorConfig
from lam_vllm.errors import EncoderError, WorkerLostError
from lam_vllm.serving.asgi import header_of
from lam_vllm.serving.box import RequestBox, current_box
from lam_vllm.serving.middleware import OPTIONS_HEADER, SALT_HEADER
from lam_vllm.serving.options import Options
from lam_vllm.serving.prompt_tokens import PromptTokens
from lam_vllm.serving.routes.asked import Asked, Messages, in_lane, options_of, salt_of, service_of
from lam_vllm.serving.routes.bounded import AsciiResponse
from lam_vllm.serving.service import Alone, Service
from lam_vllm.serving.work import Plan, removed_text
from lam_vllm.types import Compaction, Decision, Outcome, Report


class ToCompact(Asked):
    """Messages to compact without generating anything."""

    messages: Messages


class RecordedDecision(BaseModel):
    """One replacement, and the id of the text it removed where that text is kept."""

    decision: dict[str, Any]
    record: str | None


class Compacted(BaseModel):
    """What the prompt would hold, or shall hold, and why. A dry run has no outcome.

    `report` and `config` are null where nothing was computed: the messages are as they came, for the `reason`.
    """

    outcome: Outcome | None
    reason: str | None
    messages: list[dict[str, Any]]
    decisions: list[RecordedDecision]
    report: dict[str, Any] | None
    config: CompactorConfig | None


async def compact(body: ToCompact, http: Request, after: BackgroundTasks) -> Response:
    """The messages compacted, with every decision.

    In a server without an engine the answer counts as a request: it is in the metrics, a failure gives the messages as
    they came with the outcome `failed_open`, and what was removed can be looked up. Beside an engine it is a dry run:
    computed from nothing and counted nowhere; 503 when the encoder fails or it is not done within the time limit, 500
    when anything else fails. 400 on a bad option.
    """
    service = service_of(http)
    if service.alone is None:
        return await _dry_run(service, body, http)
    return await _compacted(service, service.alone, body, http, after)


async def _compacted(
    service: Service, alone: Alone, body: ToCompact, http: Request, after: BackgroundTasks
) -> Response:
    box = RequestBox(
        api="compact",
        options_header=header_of(http.headers.raw, OPTIONS_HEADER),
        salt_header=header_of(http.headers.raw, SALT_HEADER),
        scope=http.scope,
    )
    with _in_box(box):
        plan = await service.admission.admit(
            SimpleNamespace(model=body.model, lam=body.lam, cache_salt=body.cache_salt), body.messages
        )
    if alone.spans is not None:
        alone.spans.record(box, body, plan)
    config = None
    if plan.report is not None:
        config = service.handler.compactors.resolved(options_of(body, http).config)
        after.add_task(_settle, service, alone.prompt_tokens, box, plan, salt_of(body, http))
    shown = _shown(plan.messages, plan.decisions, plan.records, plan.report, config)
    return AsciiResponse({"outcome": plan.outcome, "reason": plan.reason, **shown}, background=after)


async def _settle(service: Service, prompt_tokens: PromptTokens, box: RequestBox, plan: Plan, salt: str) -> None:
    """Count tokens once the answer is out: no client waits for figures."""
    try:
        tokens = await service.pool.submit(lambda: prompt_tokens.count(plan.messages, salt))
    except Exception as error:  # noqa: BLE001 - the answer is out
        service.handler.log(error)
        return
    with _in_box(box):
        service.admission.settle(plan, [{"prompt_token_ids": range(tokens)}])


@contextmanager
def _in_box(box: RequestBox) -> Iterator[None]:
    token = current_box.set(box)
    try:
        yield
    finally:
        current_box.reset(token)


async def _dry_run(service: Service, body: ToCompact, http: Request) -> Response:
    options, salt = options_of(body, http), salt_of(body, http)
    lane = service.handler.compactors.lane(options.config)
    try:
        compaction, records = await in_lane(service, lambda: _from_nothing(service, options, body.messages, salt), lane)
    except HTTPException:
        raise
    except Exception as error:  # noqa: BLE001 - whatever is wrong in here, the client gets JSON
        service.handler.log(error)
        code = 503 if isinstance(error, EncoderError | WorkerLostError) else 500
        raise HTTPException(code, f"the compaction failed: {type(error).__name__}; see the server's log") from None
    config = service.handler.compactors.resolved(options.config)
    shown = _shown(compaction.messages, compaction.decisions, records, compaction.report, config)
    return AsciiResponse({"outcome": None, "reason": None, **shown})


def _from_nothing(
    service: Service, options: Options, messages: list[Any], salt: str
) -> tuple[Compaction, tuple[str | None, ...]]:
    # Without the memo: a dry run must not use up what the next real request would count as new.
    compaction = service.handler.compactors.get(options.config).compact(messages, salt=salt, use_memo=False)
    texts = [removed_text(messages, decision) if options.keeps else "" for decision in compaction.decisions]
    return compaction, tuple(service.handler.records.put(salt, text) if text else None for text in texts)


def _shown(
    messages: Any,
    decisions: Sequence[Decision],
    records: Sequence[str | None],
    report: Report | None,
    config: CompactorConfig | None,
) -> dict[str, Any]:
    """The part of an answer that tells what was done."""
    kept = records or [None] * len(decisions)  # without books, since they failed, there is none
    return {
        "messages": messages,
        "decisions": [
            {"decision": decision._asdict(), "record": record} for decision, record in zip(decisions, kept, strict=True)
        ],
        "report": None if report is None else {**asdict(report), "saved_tokens": report.saved_tokens},
        "config": None if config is None else config.model_dump(mode="json"),
    }
