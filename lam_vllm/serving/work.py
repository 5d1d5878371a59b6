"""What runs in a compactor's thread for one request: compaction, and the books that are kept about it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from lam_vllm.compactor import Compactor
from lam_vllm.compactors import Compactors
from lam_vllm.config import CompactorConfig, resolved_config
from lam_vllm.encoders.base import Encoder, traits_of
from lam_vllm.errors import EncoderError, WorkerLostError
from lam_vllm.messages import quick_digests
from lam_vllm.pool import Lane
from lam_vllm.records import RecordStore
from lam_vllm.serving.options import Options
from lam_vllm.serving.prefix_watch import Cause, PrefixWatch
from lam_vllm.types import Compaction, Decision, Message, Outcome, Reason, Report
from lam_vllm.worker import EncoderFacts, WorkerClient, WorkerCompactor
from lam_vllm.worker.jobs import Forget, Held

logger = logging.getLogger(__name__)


Difference = Literal["defect", "guard_band"]
_FAILED = "a compaction failed; it is tried once more, then the original messages are used"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to hand to vLLM, and why. `messages` is the object that was given unless its text had to change.

    `records` holds for each decision the id of the text that it removed, None where that is not kept.
    """

    messages: Any
    outcome: Outcome
    reason: str
    report: Report | None = None
    prefix_break: Cause | None = None
    seconds: float = 0.0
    decisions: tuple[Decision, ...] = ()
    records: tuple[str | None, ...] = ()


class Compactions:
    """The compactor of each config: in this process, or in the worker process where the profile needs its encoder."""

    def __init__(self, here: Compactors, client: WorkerClient | None = None) -> None:
        self.here = here
        self.client = client

    @property
    def encoder(self) -> Encoder | EncoderFacts | None:
        """The encoder, or what is known of the worker's."""
        return self.client.facts if self.client is not None else self.here.encoder

    @property
    def has_basis(self) -> bool:
        """Whether the encoder's profile names a basis, so that a search can be `pruned`."""
        encoder = self.encoder
        if encoder is None:
            return False
        return (encoder.basis if isinstance(encoder, EncoderFacts) else traits_of(encoder).basis) is not None

    def get(self, config: CompactorConfig, *, index: bool = False) -> Compactor | WorkerCompactor:
        """The compactor of this config. With `index` the worker makes what it embeds searchable, off anybody's path.

        Raises:
            MissingExtraError: its profile needs an encoder and there is none.
        """
        if self.client is None or self.resolved(config).profile == "exact":
            return self.here.get(config)
        return WorkerCompactor(config, self.client, index=index)

    def resolved(self, config: CompactorConfig) -> CompactorConfig:
        """The config with its profile and threshold filled in. Raises as `get`."""
        threshold_cos = self.encoder.threshold_cos if self.encoder is not None else None
        return resolved_config(config, threshold_cos, has_basis=self.has_basis)

    def lane(self, config: CompactorConfig) -> Lane:
        """Where work under this config runs: apart from what encodes, if it never does."""
        return "exact" if self.encoder is None or config.profile == "exact" else "encoder"

    @property
    def store_bytes(self) -> int:
        """Bytes of embeddings in the store that processes share; 0 where there is none."""
        return self.client.held.store_bytes if self.client is not None else 0

    @property
    def index_bytes(self) -> int:
        """Bytes of what can be searched, as far as they are known; 0 without a worker."""
        return self.client.held.index_bytes if self.client is not None else 0

    def forget(self, salt: str) -> None:
        """Delete every index under this salt, those that wait to be written too. Waits for the worker.

        Raises:
            StoreError: the store cannot be written now, or cannot say yet that they are gone.
            RuntimeError: anything else failed in the worker.
        """
        if self.client is None:
            return
        with suppress(WorkerLostError):  # nothing waits in a process that is no more
            self.client.submit(Forget(salt)).result()

    def memo_bytes(self) -> dict[str, int]:
        """Bytes held by the memos of both processes."""
        held = self.client.held if self.client is not None else Held()
        return {"prefix": self.here.memo_bytes_used + held.prefix_bytes, "embedding": held.embedding_bytes}


class Handler:
    """Compacts and keeps the books: prefixes seen, text removed. Blocking: call it in a pool."""

    def __init__(self, compactors: Compactions, watch: PrefixWatch, records: RecordStore) -> None:
        self.compactors = compactors
        self.watch = watch
        self.records = records
        self._failures_seen: set[type[Exception]] = set()

    def run(
        self, options: Options, messages: list[Message], salt: str, is_wanted: Callable[[], bool] = lambda: True
    ) -> Plan:
        """The plan for one request. An internal failure becomes the outcome `failed_open` with the originals.

        Before that it is tried once more, from nothing, while the plan `is_wanted`.
        """
        try:
            compaction = self._compact(options, messages, salt, is_wanted)
        except Exception as error:  # noqa: BLE001 - the request must go through whatever is wrong in here
            self.log(error)
            self.note_failure(messages, salt)
            return failed_open(messages, _failure(error))
        outcome, reason = _outcome(options, compaction)
        # An escaped stub-like line changes bytes without removing any, so `messages` decides here, not `changed`.
        emitted = compaction.messages if options.mode == "on" else messages
        plan = Plan(emitted, outcome, reason, compaction.report, decisions=compaction.decisions)
        try:
            return replace(
                plan,
                records=self._keep_records(options, messages, compaction, salt),
                prefix_break=self._watch(options, messages, emitted, compaction.report, salt),
            )
        except Exception as error:  # noqa: BLE001 - the books are no reason to lose a good compaction
            self.log(error)
            return plan

    def difference(self, config: CompactorConfig, given: list[Message], emitted: str, salt: str) -> Difference | None:
        """Why computing `given` again, from nothing and canonically, ends in another digest than `emitted`, or None.

        `defect`: what was emitted came from a memo of prefixes, since the fast pass agrees with canonical embeddings.
        `guard_band`: it does not.
        """

        def digest(*, canonical: bool = False) -> str:
            fresh = self.compactors.get(config).compact(given, salt=salt, use_memo=False, canonical=canonical)
            return quick_digests(fresh.messages, salt)[-1]

        right = digest(canonical=True)
        if right == emitted:
            return None
        return "defect" if digest() == right else "guard_band"

    def note_off(self, messages: Sequence[Message], salt: str) -> Cause | None:
        """Remember that the originals went through because compaction was off; why that broke a prefix, or None."""
        return self.watch.note(salt, messages, messages, "off")

    def note_failure(self, messages: Sequence[Message], salt: str) -> None:
        """Remember that the originals went through, so that the break which follows is counted under its cause."""
        try:
            self.watch.note(salt, messages, messages, "", failed=True)
        except Exception as error:  # noqa: BLE001 - messages that cannot be digested may be what failed
            self.log(error)

    def log(self, error: Exception, what: str = _FAILED) -> None:
        """One traceback per kind of failure: a line per request would slow the server down when it is ill."""
        seen = type(error) in self._failures_seen
        self._failures_seen.add(type(error))
        logger.log(logging.DEBUG if seen else logging.ERROR, "lam: %s", what, exc_info=error)

    def _compact(
        self, options: Options, messages: list[Message], salt: str, is_wanted: Callable[[], bool]
    ) -> Compaction:
        compactor = self.compactors.get(options.config, index=options.keeps)
        try:
            return compactor.compact(messages, salt=salt)
        except Exception as error:  # what a memo or the fast pass did may be the cause
            if not is_wanted():  # a worker that was ended over it has others to serve
                raise
            self.log(error)
            return compactor.compact(messages, salt=salt, use_memo=False, canonical=True)

    def _keep_records(
        self, options: Options, given: list[Message], compaction: Compaction, salt: str
    ) -> tuple[str | None, ...]:
        texts = [removed_text(given, decision) if options.keeps else "" for decision in compaction.decisions]
        return tuple(self.records.put(salt, text) if text else None for text in texts)

    def _watch(self, options: Options, given: list[Message], emitted: Any, report: Report, salt: str) -> Cause | None:
        return self.watch.note(salt, given, emitted, report.config_digest if options.mode == "on" else "observe")


def removed_text(messages: Sequence[Message], decision: Decision) -> str:
    """The characters of the original messages that `decision` replaced; none where it defined a short name."""
    content = messages[decision.message]["content"]
    text: str = content if decision.part is None else content[decision.part]["text"]
    return text[decision.start : decision.end]


def failed_open(messages: Any, reason: str) -> Plan:
    """The plan that hands the originals on after a failure."""
    return Plan(messages, "failed_open", reason)


def _failure(error: Exception) -> Reason:
    if isinstance(error, WorkerLostError):
        return "worker_lost"
    return "encoder_error" if isinstance(error, EncoderError) else "internal_error"


def _outcome(options: Options, compaction: Compaction) -> tuple[Outcome, str]:
    reason = _reason(compaction.report)
    if options.mode == "observe":
        return "observed", "none" if compaction.changed else reason
    return ("changed", "none") if compaction.changed else ("unchanged", reason)


def _reason(report: Report) -> str:
    """Why text was left alone: the most frequent reason; of equal ones the first by name, so that labels are stable."""
    if not report.observations:
        return "no_observation"
    return min(report.reasons, key=lambda reason: (-report.reasons[reason], reason), default="no_repeat")
