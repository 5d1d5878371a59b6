"""What runs in a compactor's thread for one request: compaction, and the books that are kept about it."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lam_vllm.compactor import Compactor
from lam_vllm.config import CompactorConfig
from lam_vllm.encoders.base import Encoder
from lam_vllm.errors import EncoderError
from lam_vllm.messages import quick_digests
from lam_vllm.pool import Lane
from lam_vllm.records import RecordStore
from lam_vllm.serving.options import Options
from lam_vllm.serving.prefix_watch import Cause, PrefixWatch
from lam_vllm.types import Compaction, Decision, Message, Outcome, Report

logger = logging.getLogger(__name__)

MAX_COMPACTORS = 8
MEMO_BYTES = 128_000_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What to hand to vLLM, and why. `messages` is the object that was given unless its text had to change."""

    messages: Any
    outcome: Outcome
    reason: str
    report: Report | None = None
    prefix_break: Cause | None = None
    seconds: float = 0.0


class Compactors:
    """One compactor per distinct config, least recently used first out. Losing one costs time, never bytes."""

    def __init__(self, count_tokens: Callable[[str], int], encoder: Encoder | None, tokenizer_name: str) -> None:
        self.encoder = encoder
        self._count_tokens = count_tokens
        self._tokenizer_name = tokenizer_name
        self._by_config: OrderedDict[CompactorConfig, Compactor] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, config: CompactorConfig) -> Compactor:
        """The compactor of this config."""
        with self._lock:
            compactor = self._by_config.pop(config, None) or Compactor(
                config, self._count_tokens, self.encoder, tokenizer_name=self._tokenizer_name, memo_bytes=MEMO_BYTES
            )
            self._by_config[config] = compactor
            while len(self._by_config) > MAX_COMPACTORS:
                self._by_config.popitem(last=False)
        return compactor

    def lane(self, config: CompactorConfig) -> Lane:
        """Where work under this config runs: apart from what encodes, if it never does."""
        return "exact" if self.encoder is None or config.profile == "exact" else "encoder"

    @property
    def memo_bytes_used(self) -> int:
        """Bytes held by the memos of all of them."""
        with self._lock:
            return sum(compactor.memo_bytes_used for compactor in self._by_config.values())


class Worker:
    """Compacts and keeps the books: prefixes seen, text removed. Blocking: call it in a pool."""

    def __init__(self, compactors: Compactors, watch: PrefixWatch, records: RecordStore) -> None:
        self.compactors = compactors
        self.watch = watch
        self.records = records
        self._failures_seen: set[type[Exception]] = set()

    def run(self, options: Options, messages: list[Message], salt: str) -> Plan:
        """The plan for one request. An internal failure becomes the outcome `failed_open` with the originals."""
        try:
            compaction = self._compact(options.config, messages, salt)
        except Exception as error:  # noqa: BLE001 - the request must go through whatever is wrong in here
            self.log(error)
            self.note_failure(messages, salt)
            return failed_open(messages, "encoder_error" if isinstance(error, EncoderError) else "internal_error")
        outcome, reason = _outcome(options, compaction)
        # An escaped stub-like line changes bytes without removing any, so `messages` decides here, not `changed`.
        emitted = compaction.messages if options.mode == "on" else messages
        cause = self._keep_books(options, messages, emitted, compaction, salt)
        return Plan(emitted, outcome, reason, compaction.report, cause)

    def differs_from_nothing(self, config: CompactorConfig, given: list[Message], emitted: str, salt: str) -> bool:
        """Whether computing `given` again without a memo ends in another digest than `emitted`."""
        fresh = self.compactors.get(config).compact(given, salt=salt, use_memo=False)
        return quick_digests(fresh.messages, salt)[-1] != emitted

    def note_failure(self, messages: Sequence[Message], salt: str) -> None:
        """Remember that the originals went through, so that the break which follows is counted under its cause."""
        try:
            self.watch.note(salt, messages, messages, "", failed=True)
        except Exception as error:  # noqa: BLE001 - messages that cannot be digested may be what failed
            self.log(error)

    def log(self, error: Exception) -> None:
        """One traceback per kind of failure: a line per request would slow the server down when it is ill."""
        seen = type(error) in self._failures_seen
        self._failures_seen.add(type(error))
        level = logging.DEBUG if seen else logging.ERROR
        logger.log(level, "lam: a compaction failed; the original messages are used", exc_info=error)

    def _compact(self, config: CompactorConfig, messages: list[Message], salt: str) -> Compaction:
        compactor = self.compactors.get(config)
        try:
            return compactor.compact(messages, salt=salt)
        except Exception as error:  # noqa: BLE001 - a damaged memo must not outlive the request that met it
            self.log(error)
            return compactor.compact(messages, salt=salt, use_memo=False)

    def _keep_books(
        self, options: Options, given: list[Message], emitted: Any, compaction: Compaction, salt: str
    ) -> Cause | None:
        try:
            if options.store and options.mode == "on":
                for decision in compaction.decisions:
                    if text := removed_text(given, decision):
                        self.records.put(salt, text)
            config = compaction.report.config_digest if options.mode == "on" else "observe"
            return self.watch.note(salt, given, emitted, config)
        except Exception as error:  # noqa: BLE001 - the books are no reason to lose a good compaction
            self.log(error)
            return None


def removed_text(messages: Sequence[Message], decision: Decision) -> str:
    """The characters of the original messages that `decision` replaced; none where it defined a short name."""
    content = messages[decision.message]["content"]
    text: str = content if decision.part is None else content[decision.part]["text"]
    return text[decision.start : decision.end]


def failed_open(messages: Any, reason: str) -> Plan:
    """The plan that hands the originals on after a failure."""
    return Plan(messages, "failed_open", reason)


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
