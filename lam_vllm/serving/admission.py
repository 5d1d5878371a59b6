"""The hook: decides what to do with one chat request before vLLM tokenizes it. Knows vLLM only by what it is given."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from lam_vllm.errors import OptionError
from lam_vllm.metrics import NO_REASON, Metrics, shared_directory
from lam_vllm.pool import Piece, Pool
from lam_vllm.serving.accounting import Accounting
from lam_vllm.serving.box import RequestBox, current_box
from lam_vllm.serving.options import Options, request_options
from lam_vllm.serving.recheck import MOST_IN_BACKGROUND, Recheck
from lam_vllm.serving.salt import salt_of
from lam_vllm.serving.settings import Settings
from lam_vllm.serving.switch import Switch
from lam_vllm.serving.tasks import Tasks
from lam_vllm.serving.work import Handler, Plan, failed_open
from lam_vllm.types import Message, Reason

T = TypeVar("T")


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
    """Decides, computes off the event loop, and counts. One object per process, used on the event loop only.

    `switch` is the run-time switch: off wins over everything.
    """

    def __init__(self, settings: Settings, handler: Handler, pool: Pool, metrics: Metrics, seam: Seam) -> None:
        self.switch = Switch(shared_directory())
        self.handler = handler
        self.accounting = Accounting(metrics, handler)
        self._settings = settings
        self._pool = pool
        self._seam = seam
        self._recheck = Recheck(handler, pool, self.accounting, settings.encoder.audit_rate)
        self._tasks = Tasks()

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
            self.handler.log(error)
            plan = failed_open(messages, "internal_error")
        self.accounting.decided(box, plan.outcome, plan.reason)
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
            self.accounting.settled(current_box.get() or RequestBox(), plan, engine_inputs)
        except Exception as error:  # noqa: BLE001 - figures are no reason to lose a rendered prompt
            self.handler.log(error)

    async def ended(self) -> None:
        """Wait for what is under way."""
        await self._tasks.ended()

    async def _admit(self, request: Any, messages: Any, box: RequestBox) -> Plan:
        options = self._options(request, box)
        box.wants_usage = options.usage
        if options.mode == "off":
            self._remember_off(request, messages, box)
            return Plan(messages, "passed_through", "off")
        reason = pass_through_reason(request, messages, box, self._seam.has_media)
        if reason is None and self._settings.rollout.leaves_alone(options, messages):
            reason = "canary"
        if reason is not None:
            return Plan(messages, "passed_through", reason)
        begun = time.perf_counter()
        plan = await self._compacted(options, messages, _salt(request, box))
        return replace(plan, seconds=time.perf_counter() - begun)

    def _options(self, request: Any, box: RequestBox) -> Options:
        default = self._default(request)
        if not self.switch.on:
            return replace(default, mode="off")
        field, xargs = getattr(request, "lam", None), getattr(request, "vllm_xargs", None)
        compactors = self.handler.compactors
        options = request_options(
            default,
            header=box.options_header,
            field=field,
            xargs=xargs,
            has_encoder=compactors.encoder is not None,
            has_basis=compactors.has_basis,
        )
        if self._seam.harmony and options.mode != "off":
            raise OptionError("lam", options.mode, "off: the plugin cannot see how this model's prompts are rendered")
        return options

    def _default(self, request: Any) -> Options:
        return self._settings.rollout.default_for(getattr(request, "model", None), self._settings.options)

    def _remember_off(self, request: Any, messages: Any, box: RequestBox) -> None:
        """Note what vLLM gets while the plugin is off for a conversation for which it is on at other times.

        Turning it on or off breaks the conversation's cached prefix once, and that is to be counted.
        """
        usually_on = self._default(request).mode == "on" and isinstance(messages, list) and box.authorized
        if usually_on and self._pool.waiting("background") < MOST_IN_BACKGROUND:
            self._later(self._note_off(list(messages), _salt(request, box)))

    async def _note_off(self, given: list[Message], salt: str) -> None:
        cause = await self._pool.submit(lambda: self.handler.note_off(given, salt), "background")
        if cause is not None:
            self.accounting.broken(cause)

    async def _compacted(self, options: Options, messages: list[Message], salt: str) -> Plan:
        lane = self.handler.compactors.lane(options.config)
        piece: Piece[Plan] = Piece(lambda: self.handler.run(options, messages, salt, lambda: piece.wanted))
        # Shielded: when the client is gone, what was begun ends in the memos, for whoever asks next.
        work = self._tasks.start(self._pool.submit(piece, lane))
        try:
            async with asyncio.timeout(self._settings.limits.time_limit_seconds):
                plan = await asyncio.shield(work)
        except (TimeoutError, asyncio.CancelledError) as error:
            piece.wanted = False
            if not piece.begun:
                work.cancel()  # nobody waits for it any more, and others wait behind it
            if isinstance(error, asyncio.CancelledError):
                raise
            self._later(self._note_failure(work, list(messages), salt))
            return failed_open(messages, "time_limit")
        if self._recheck.is_due(options, plan):
            self._later(self._recheck.run(options, list(messages), plan.messages, salt))
        return plan

    async def _note_failure(self, work: asyncio.Task[Plan], given: list[Message], salt: str) -> None:
        """Once the late work has made its own note, which was of what vLLM did not get."""
        await asyncio.wait([work])
        await self._pool.submit(lambda: self.handler.note_failure(given, salt))

    def _later(self, work: Coroutine[Any, Any, object]) -> None:
        async def guarded() -> None:
            try:
                await work
            except Exception as error:  # noqa: BLE001 - nobody waits for this
                self.handler.log(error)

        self._tasks.start(guarded())

    def _rejected(self, box: RequestBox, error: OptionError) -> Exception:
        self.accounting.decided(box, "rejected", NO_REASON)
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
    return salt_of(getattr(request, "cache_salt", None), box.salt_header)
