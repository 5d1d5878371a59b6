"""The hook: decides what to do with one chat request before vLLM tokenizes it. Knows vLLM only by what it is given."""

from __future__ import annotations

import asyncio
import functools
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lam_vllm.errors import OptionError
from lam_vllm.messages import chain_digests
from lam_vllm.metrics import NO_REASON, STAGES, Metrics
from lam_vllm.pool import Pool
from lam_vllm.serving.box import RequestBox, Settled, current_box
from lam_vllm.serving.options import Options, request_options
from lam_vllm.serving.prefix_watch import is_sampled
from lam_vllm.serving.work import Plan, Worker, failed_open
from lam_vllm.types import Message, Reason, Report

TIME_LIMIT_SECONDS = 120.0
"""Last resort for one request, its wait included: after this the originals go through, counted as `failed_open`."""

_LONG_CHARACTERS = 400
_LONG_REPLIES = 3


@dataclass(frozen=True, slots=True)
class Seam:
    """What the hook needs to know of vLLM.

    `reject` makes the exception that every API answers with a clean 400; `has_media` is vLLM's own test whether
    messages hold more than text; `harmony` says that prompts are rendered on a path that the hook does not see.
    """

    reject: Callable[[OptionError], Exception]
    has_media: Callable[[Any], bool]
    harmony: bool = False


class Admission:
    """Decides, computes off the event loop, and counts. `enabled` is the run-time switch: False wins over everything.

    One object per server; the pool's thread and the event loop share it.
    """

    def __init__(self, default: Options, worker: Worker, pool: Pool, metrics: Metrics, seam: Seam) -> None:
        self.enabled = True
        self.default = default
        self.worker = worker
        self.looked_like_tool_user = 0
        self._pool = pool
        self._metrics = metrics
        self._seam = seam
        self._later_tasks: set[asyncio.Task[None]] = set()

    async def admit(self, request: Any, messages: Any) -> Plan:
        """What vLLM shall render instead of `messages`: a new list, or the very object when nothing is removed.

        Raises:
            Exception: the seam's rejection of a bad option; nothing else but cancellation.
        """
        box = current_box.get() or RequestBox()
        try:
            plan = await self._admit(request, messages, box)
        except OptionError as error:
            raise self._rejected(box, error) from None
        except Exception as error:  # noqa: BLE001 - the request must go through whatever is wrong in here
            self.worker.log(error)
            plan = failed_open(messages, "internal_error")
        box.outcome = plan.outcome
        self._metrics.requests.labels(box.api, plan.outcome, plan.reason).inc()
        return plan

    def refuse_if_asked(self, request: Any) -> None:
        """Reject a request that asks for compaction where none is possible; let any other pass.

        Raises:
            Exception: the seam's rejection.
        """
        box = current_box.get() or RequestBox()
        try:
            self._options(request, box)
        except OptionError as error:
            raise self._rejected(box, error) from None

    def settle(self, plan: Plan, engine_inputs: Sequence[Any]) -> None:
        """Count tokens once vLLM has made its ids, and leave the figures for the report header."""
        if plan.reason == "off":
            return
        try:
            self._settle(plan, engine_inputs, current_box.get() or RequestBox())
        except Exception as error:  # noqa: BLE001 - figures are no reason to lose a rendered prompt
            self.worker.log(error)

    async def ended(self) -> None:
        """Wait for recomputations under way."""
        await asyncio.gather(*self._later_tasks)

    async def _admit(self, request: Any, messages: Any, box: RequestBox) -> Plan:
        options = self._options(request, box)
        if options.mode == "off":
            return Plan(messages, "passed_through", "off")
        reason = pass_through_reason(request, messages, box, self._seam.has_media)
        if reason is not None:
            return Plan(messages, "passed_through", reason)
        begun = time.perf_counter()
        plan = await self._compacted(options, messages, _salt(request, box))
        return replace(plan, seconds=time.perf_counter() - begun)

    def _settle(self, plan: Plan, engine_inputs: Sequence[Any], box: RequestBox) -> None:
        if plan.prefix_break is not None:
            self._metrics.prefix_breaks.labels(plan.prefix_break).inc()
        prefilled = sum(len(entry.get("prompt_token_ids") or ()) for entry in engine_inputs)
        saved = plan.report.saved_tokens if plan.report is not None and plan.outcome == "changed" else 0
        settled = Settled(plan.outcome, plan.reason, prefilled + saved, prefilled, plan.seconds, plan.report)
        box.settled.append(settled)
        self._metrics.prompt_tokens_original.labels(box.api).inc(max(0, settled.original_tokens))
        self._metrics.prompt_tokens_prefilled.labels(box.api).inc(prefilled)
        if plan.report is None:
            return
        self._metrics.removal_ratio.observe(max(0.0, saved / max(1, settled.original_tokens)))
        self._count_report(plan.report)
        if plan.reason == "no_observation" and looks_like_tool_user(plan.messages):
            self.looked_like_tool_user += 1

    def _options(self, request: Any, box: RequestBox) -> Options:
        if not self.enabled:
            return replace(self.default, mode="off")
        field, xargs = getattr(request, "lam", None), getattr(request, "vllm_xargs", None)
        has_encoder = self.worker.compactors.encoder is not None
        options = request_options(
            self.default, header=box.options_header, field=field, xargs=xargs, has_encoder=has_encoder
        )
        if self._seam.harmony and options.mode != "off":
            raise OptionError("lam", options.mode, "off: the plugin cannot see how this model's prompts are rendered")
        return options

    async def _compacted(self, options: Options, messages: list[Message], salt: str) -> Plan:
        try:
            async with asyncio.timeout(TIME_LIMIT_SECONDS):
                plan = await self._pool.submit(lambda: self.worker.run(options, messages, salt))
        except TimeoutError:
            self._later(functools.partial(self.worker.note_failure, list(messages), salt))
            return failed_open(messages, "time_limit")
        if plan.report is not None and options.mode == "on" and is_sampled(plan.report.prefix_digest):
            self._later(functools.partial(self._recheck, options, list(messages), plan.messages, salt))
        return plan

    def _recheck(self, options: Options, given: list[Message], emitted: list[Message], salt: str) -> None:
        if self.worker.differs_from_nothing(options.config, given, chain_digests(emitted, salt)[-1], salt):
            self._metrics.prefix_breaks.labels("defect").inc()

    def _later(self, work: Callable[[], None]) -> None:
        async def guarded() -> None:
            try:
                await self._pool.submit(work)
            except Exception as error:  # noqa: BLE001 - nobody waits for this
                self.worker.log(error)

        task = asyncio.ensure_future(guarded())
        self._later_tasks.add(task)  # the loop itself holds tasks weakly
        task.add_done_callback(self._later_tasks.discard)

    def _count_report(self, report: Report) -> None:
        metrics = self._metrics
        for layer, tokens in report.new_removed_tokens.items():
            metrics.tokens_removed.labels(layer).inc(tokens)
        metrics.stub_tokens.inc(report.new_stub_tokens)
        metrics.uncached_tokens_avoided.inc(max(0, sum(report.new_removed_tokens.values()) - report.new_stub_tokens))
        metrics.boundary_pairs.inc(report.new_boundary_pairs)
        for distance in report.new_distances:
            metrics.substitution_distance.observe(distance)
        for stage, seconds in report.seconds.items():
            if stage in STAGES:
                metrics.compaction_seconds.labels(stage).observe(seconds)
        encoded = report.work.encoder_calls
        metrics.encoder_windows.labels("encoder").inc(encoded)
        metrics.encoder_windows.labels("memo").inc(max(0, report.work.new_windows - encoded))
        metrics.raise_bounds(report.delta, report.delta_hat)
        metrics.memo_bytes.labels("prefix").set(self.worker.compactors.memo_bytes_used)
        metrics.store_bytes.labels("records").set(self.worker.records.bytes_used)

    def _rejected(self, box: RequestBox, error: OptionError) -> Exception:
        box.outcome = "rejected"
        self._metrics.requests.labels(box.api, "rejected", NO_REASON).inc()
        return self._seam.reject(error)


def pass_through_reason(
    request: Any, messages: Any, box: RequestBox, has_media: Callable[[Any], bool]
) -> Reason | None:
    """Why this request must reach vLLM as it came although compaction is on, or None."""
    if not box.authorized:
        return "unauthenticated"
    if box.response_started:
        return "response_started"
    if not isinstance(messages, list):
        return "not_a_list"
    truncates = getattr(request, "truncate_prompt_tokens", None) is not None
    # vLLM cuts the front for any value of `truncation` but "disabled", null included: a target might be cut off.
    if truncates or getattr(request, "truncation", "disabled") != "disabled":
        return "truncation"
    return "token_reuse" if _reuses_tokens(request, messages, has_media) else None


def _reuses_tokens(request: Any, messages: list[Any], has_media: Callable[[Any], bool]) -> bool:
    """Whether vLLM will prefill forwarded token ids instead of `messages`. Looks only: vLLM itself pops the key."""
    forwarded = getattr(request, "kv_transfer_params", None)
    if not isinstance(forwarded, dict) or forwarded.get("prompt_token_ids") is None:
        return False
    return not getattr(request, "echo", False) and not has_media(messages)


def _salt(request: Any, box: RequestBox) -> str:
    salt = getattr(request, "cache_salt", None)
    return salt if isinstance(salt, str) else box.salt_header or ""


def looks_like_tool_user(messages: Sequence[Message]) -> bool:
    """Whether long user messages follow assistant messages so often that an agent, not a person, writes them."""
    replies = [
        after.get("content")
        for before, after in itertools.pairwise(messages)
        if before.get("role") == "assistant" and after.get("role") == "user"
    ]
    long = sum(isinstance(reply, str) and len(reply) >= _LONG_CHARACTERS for reply in replies)
    return long >= _LONG_REPLIES and 2 * long > len(replies)


def install(renderer: Any, admission: Admission) -> None:
    """Put the hook in front of this renderer's `preprocess_chat`. Twice is the same as once: the newest one decides."""
    original = getattr(renderer.preprocess_chat, "lam_original", renderer.preprocess_chat)

    @functools.wraps(original)
    async def preprocess_chat(request: Any, messages: Any, *args: Any, **kwargs: Any) -> Any:
        plan = await admission.admit(request, messages)
        conversation, engine_inputs = await original(request, plan.messages, *args, **kwargs)
        admission.settle(plan, engine_inputs)
        return conversation, engine_inputs

    preprocess_chat.lam_original = original  # type: ignore[attr-defined]
    renderer.preprocess_chat = preprocess_chat


def install_refusal(renderer: Any, admission: Admission) -> None:
    """Reject requests that ask for compaction on a model whose prompts take vLLM's own synchronous path (GPT-OSS)."""
    original = getattr(renderer.adjust_harmony_request, "lam_original", renderer.adjust_harmony_request)

    @functools.wraps(original)
    def adjust_harmony_request(request: Any) -> Any:
        admission.refuse_if_asked(request)
        return original(request)

    adjust_harmony_request.lam_original = original  # type: ignore[attr-defined]
    renderer.adjust_harmony_request = adjust_harmony_request
