"""The pipeline: messages in, the same messages with repeated tool output replaced by references out.

    messages -> observations -> (windows -> embeddings -> matches) -> cuts -> text -> messages

A message's output depends on the messages up to it and on the config, on nothing else: the memo of prefixes only
spares work.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from time import perf_counter
from typing import Any, get_args

from lam_vllm.admit import admit_text
from lam_vllm.bound import delta_of
from lam_vllm.config import CompactorConfig
from lam_vllm.encoders.base import Encoder
from lam_vllm.encoders.timed import TimedEncoder
from lam_vllm.errors import MissingExtraError
from lam_vllm.memory import ConversationMemory, Emitted, Mark
from lam_vllm.messages import chain_digests, is_observation, observed_texts, printed_texts, with_texts
from lam_vllm.prefix_memo import PrefixMemo
from lam_vllm.prices import Prices
from lam_vllm.shorten import Admission, Surroundings
from lam_vllm.stopwatch import Stopwatch
from lam_vllm.types import Compaction, Layer, Message, Report, Work

MEMO_BYTES = 256_000_000
MESSAGE_OVERHEAD_TOKENS = 8
"""What a chat template prints around a message, generously: reference distances are upper bounds."""


NOWHERE = sys.maxsize
_UNTOUCHED = Emitted()
_NOTHING = Admission()


class Compactor:
    """Replaces tool output that the conversation already holds, by the rule of its config's profile.

    `count_tokens` is the served model's tokenizer; `tokenizer_name` names it in the config digest. `config` and
    `config_digest` tell what applies. Safe to call from several threads, which take turns.

    Raises:
        MissingExtraError: the profile needs an encoder and none was given.
    """

    def __init__(
        self,
        config: CompactorConfig,
        count_tokens: Callable[[str], int],
        encoder: Encoder | None = None,
        *,
        tokenizer_name: str = "",
        memo_bytes: int = MEMO_BYTES,
    ) -> None:
        self.config = _resolved(config, encoder)
        self.encoder = encoder if self.config.profile != "exact" else None
        fingerprint = self.encoder.fingerprint if self.encoder else ""
        self.config_digest = self.config.digest(tokenizer_name, fingerprint)
        self._watch = Stopwatch()
        self._timed_encoder = TimedEncoder(self.encoder, self._watch) if self.encoder else None
        self._count_tokens = self._watch.timed("count", count_tokens)
        self._memo = PrefixMemo(memo_bytes, self.encoder.dimension if self.encoder else 1)
        self._lock = Lock()

    @property
    def memo_bytes_used(self) -> int:
        """Estimated bytes that the memo of prefixes holds."""
        return self._memo.nbytes

    def compact(self, messages: Sequence[Message], *, salt: str = "", use_memo: bool = True) -> Compaction:
        """The messages to render. Never changes or keeps what it is given; nothing crosses from one salt to another.

        Linear in the new messages, and in one digest of the known ones.

        Raises:
            EncoderError: the encoder failed.
        """
        with self._lock:
            return self._compact(messages, salt, use_memo)

    def _compact(self, messages: Sequence[Message], salt: str, use_memo: bool) -> Compaction:
        self._watch.restart()
        started = perf_counter()
        digests = chain_digests(messages, f"{self.config_digest}\0{salt}")
        memory, known = self._memo.take(digests) if use_memo else (self._memo.empty(), 0)
        recognised = perf_counter()
        try:
            work = self._extend(memory, messages, digests, known)
        except BaseException:
            self._memo.drop(memory)  # it may hold half a message
            raise
        if use_memo:
            self._memo.put(memory)
        ended = perf_counter()
        seconds = {"recognise": recognised - started, "total": ended - started, **self._watch.seconds}
        return self._compaction(messages, memory.marks[: len(messages)], digests, work, seconds)

    def _extend(self, memory: ConversationMemory, messages: Sequence[Message], digests: list[str], known: int) -> Work:
        """Admit the messages from `known` on, and mark each in the memory."""
        lines = windows = encoder_calls = 0
        prices = Prices(self._count_tokens)
        for index in range(known, len(messages)):
            tokens, reach = self._reach(memory, messages[index])
            emitted, admission = self._admit_message(messages, index, memory, prices, reach)
            memory.position_tokens += tokens
            lines += admission.lines
            windows += admission.windows
            encoder_calls += admission.encoder_calls
            untouched = emitted is _UNTOUCHED and memory.marks and not memory.position_tokens
            size = memory.marks[-1].size if untouched else memory.size()
            memory.marks.append(Mark(digests[index], emitted, size))
        return Work(known, len(messages) - known, lines, windows, encoder_calls)

    def _admit_message(
        self, messages: Sequence[Message], index: int, memory: ConversationMemory, prices: Prices, reach: int
    ) -> tuple[Emitted, Admission]:
        if not is_observation(messages, index, self.config.observations):
            return _UNTOUCHED, _NOTHING
        total = _NOTHING
        memory.results += 1
        observations, opaque = observed_texts(messages, index, memory.results, self.config.exclude_tools)
        texts: dict[int | None, str] = {}
        for observation in observations:
            place = Surroundings(total.printed, len(observations) == 1, reach)
            admission = admit_text(observation, memory, self.config, prices, self._timed_encoder, place)
            total = admission if total is _NOTHING else total.plus(admission)
            if admission.text != observation.text:
                texts[observation.part] = admission.text
        reasons = (opaque,) if opaque else tuple(sorted(total.reasons))
        emitted = Emitted(
            tuple(texts.items()), total.decisions, reasons, total.boundary_pairs, total.distances, observation=True
        )
        return emitted, total

    def _reach(self, memory: ConversationMemory, message: Message) -> tuple[int, int]:
        """Tokens of the message, and the earliest array position that a reference in it may name.

        Distances are upper bounds: from where the target's text begins, uncompacted, to where this message ends.
        """
        limit = self.config.max_reference_distance_tokens
        if limit is None:
            return 0, 0
        tokens = MESSAGE_OVERHEAD_TOKENS + sum(map(self._count_tokens, printed_texts(message)))
        first = bisect_left(
            memory.sections, memory.position_tokens + tokens - limit, key=lambda section: section.position_tokens
        )
        if first < len(memory.sections):
            return tokens, memory.sections[first].start
        return tokens, len(memory.lines) if tokens <= limit else NOWHERE

    def _compaction(
        self,
        messages: Sequence[Message],
        marks: Sequence[Mark],
        digests: list[str],
        work: Work,
        seconds: dict[str, float],
    ) -> Compaction:
        changed = {index: dict(mark.emitted.texts) for index, mark in enumerate(marks) if mark.emitted.texts}
        rendered: list[Any] = messages if isinstance(messages, list) else list(messages)
        if changed:
            rendered = [
                with_texts(message, changed[index]) if index in changed else message
                for index, message in enumerate(messages)
            ]
        totals = _Totals.of(marks)
        new = _Totals.of(marks[work.known_messages :])
        report = Report(
            profile=str(self.config.profile),
            algorithm=self.config.algorithm,
            config_digest=self.config_digest,
            prefix_digest=digests[-1] if digests else "",
            observations=totals.observations,
            removed_tokens=totals.removed,
            stub_tokens=totals.stubs,
            delta=delta_of(self.config.threshold_cos) if self.config.threshold_cos is not None else 0.0,
            delta_hat=max(totals.distances, default=0.0),
            boundary_pairs=totals.boundary_pairs,
            reasons=totals.reasons,
            new_removed_tokens=new.removed,
            new_stub_tokens=new.stubs,
            new_distances=new.distances,
            new_boundary_pairs=new.boundary_pairs,
            work=work,
            seconds=seconds,
        )
        return Compaction(rendered, totals.decisions, report)


@dataclass(frozen=True, slots=True)
class _Totals:
    """Sums over marks."""

    observations: int
    removed: dict[str, int]
    stubs: int
    reasons: dict[str, int]
    distances: tuple[float, ...]
    boundary_pairs: int
    decisions: tuple[Any, ...]

    @staticmethod
    def of(marks: Sequence[Mark]) -> _Totals:
        removed: dict[str, int] = dict.fromkeys(get_args(Layer), 0)
        reasons: Counter[str] = Counter()
        emitted = [mark.emitted for mark in marks if mark.emitted.observation]
        decisions = tuple(decision for one in emitted for decision in one.decisions)
        for decision in decisions:
            removed[decision.layer] += decision.removed_tokens
        for one in emitted:
            reasons.update(one.reasons)
        return _Totals(
            len(emitted),
            removed,
            sum(decision.stub_tokens for decision in decisions),
            dict(sorted(reasons.items())),
            tuple(distance for one in emitted for distance in one.distances),
            sum(one.boundary_pairs for one in emitted),
            decisions,
        )


def _resolved(config: CompactorConfig, encoder: Encoder | None) -> CompactorConfig:
    profile = config.profile or ("guarded" if encoder is not None else "exact")
    if profile == "exact":
        return config.model_copy(update={"profile": profile, "threshold_cos": None})
    if encoder is None:
        raise MissingExtraError(f"profile {profile}", "encoder", "profile exact, which needs no encoder")
    threshold_cos = encoder.threshold_cos if config.threshold_cos is None else config.threshold_cos
    return config.model_copy(update={"profile": profile, "threshold_cos": threshold_cos})
