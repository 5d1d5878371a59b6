"""The pipeline: messages in, the same messages with repeated tool output replaced by references out.

    messages -> observations -> (windows -> embeddings -> matches) -> cuts -> text -> messages

A message's output depends on the messages up to it and on the config, on nothing else: the memo of prefixes only
spares work.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from lam_vllm.account import account
from lam_vllm.admit import admit_text, is_planned
from lam_vllm.ahead import windows_ahead
from lam_vllm.config import CompactorConfig, resolved_config
from lam_vllm.encoders.base import Encoded, Encoder
from lam_vllm.encoders.request import RequestEncoder
from lam_vllm.memory import ConversationMemory, Emitted, Mark
from lam_vllm.messages import (
    chain_digests,
    is_observation,
    newest_turn,
    observed_texts,
    printed_texts,
    with_texts,
)
from lam_vllm.near_duplicates import RetainedWindows
from lam_vllm.prefix_memo import PrefixMemo
from lam_vllm.prices import Prices
from lam_vllm.shorten import Admission, Surroundings
from lam_vllm.stopwatch import Stopwatch
from lam_vllm.types import Compaction, Message, Work

MEMO_BYTES = 256_000_000
MESSAGE_OVERHEAD_TOKENS = 8
"""What a chat template prints around a message, generously: reference distances are upper bounds."""


NOWHERE = sys.maxsize
_UNTOUCHED = Emitted()
_NOTHING = Admission()


class Compactor:
    """Replaces tool output that the conversation already holds, by the rule of its config's profile.

    `count_tokens` is the served model's tokenizer; `tokenizer_name` names it in the config digest. `config` and
    `config_digest` tell what applies. `memo` is one of its own, of `MEMO_BYTES`, unless it is shared with others. Safe
    to call from several threads at once.

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
        memo: PrefixMemo | None = None,
    ) -> None:
        self.config = resolved_config(config, encoder.threshold_cos if encoder is not None else None)
        self.encoder = encoder if self.config.profile != "exact" else None
        fingerprint = self.encoder.fingerprint if self.encoder else ""
        self.config_digest = self.config.digest(tokenizer_name, fingerprint)
        self._count_tokens = count_tokens
        self._memo = PrefixMemo(MEMO_BYTES) if memo is None else memo

    @property
    def memo_bytes_used(self) -> int:
        """Estimated bytes that the memo of prefixes holds."""
        return self._memo.nbytes

    def compact(
        self, messages: Sequence[Message], *, salt: str = "", use_memo: bool = True, canonical: bool = False
    ) -> Compaction:
        """The messages to render. Never changes or keeps what it is given; nothing crosses from one salt to another.

        Linear in the new messages, and in one digest of the known ones. Without `use_memo` no prefix is known and none
        is remembered. `canonical` also does without whatever makes embeddings quickly: the answer is the same.

        Raises:
            EncoderError: the encoder failed.
        """
        call = _Call.begin(self.encoder, self._count_tokens, salt, canonical=canonical)
        digests = chain_digests(messages, f"{self.config_digest}\0{salt}")
        remembers = use_memo and not canonical
        memory, known = self._take(digests) if remembers else (self._empty(), 0)
        call.recognised()
        try:
            self._extend(memory, messages, digests, known, call)
        except BaseException:
            self._memo.drop(memory)  # it may hold half a message
            raise
        if remembers:
            self._memo.put(memory)
        work = call.work(known, len(messages) - known)
        marks = memory.marks[: len(messages)]
        turn = newest_turn(messages)
        report, decisions = account(self.config, self.config_digest, marks, turn, work, call.seconds())
        return Compaction(_rendered(messages, marks), decisions, report)

    def warm(self, messages: Sequence[Message], *, salt: str = "") -> Work:
        """What it took to have every embedding ready that `compact` of these messages will need. Nothing else remains.

        Raises:
            EncoderError: the encoder failed.
        """
        call = _Call.begin(self.encoder, self._count_tokens, salt, canonical=False)
        digests = chain_digests(messages, f"{self.config_digest}\0{salt}")
        memory, known = self._take(digests, copy=True)
        try:
            self._extend(memory, messages, digests, known, call)
        finally:
            self._memo.drop(memory)
        return call.work(known, len(messages) - known)

    def warm_text(self, text: str, *, salt: str = "") -> Work:
        """As `warm`, for one tool result whose conversation is not known: every window that may be asked about.

        Raises:
            EncoderError: the encoder failed.
        """
        call = _Call.begin(self.encoder, self._count_tokens, salt, canonical=False)
        if call.encoder is not None and is_planned(text, self.config):
            windows = windows_ahead([text], self.config.profile, call.encoder)[: self.config.max_windows]
            call.windows = len(windows)
            call.encoder.prepare(windows)
            for window in windows:
                call.encoder.embed(window)
        return call.work(0, 0)

    def _take(self, digests: list[str], *, copy: bool = False) -> tuple[ConversationMemory, int]:
        """A memory that nobody else extends, and how many of the messages it knows."""
        memory, known = self._memo.take(digests, copy=copy)
        return (self._empty(), 0) if memory is None else (memory, known)

    def _empty(self) -> ConversationMemory:
        return ConversationMemory(RetainedWindows(self.encoder.dimension if self.encoder else 1))

    def _extend(
        self, memory: ConversationMemory, messages: Sequence[Message], digests: list[str], known: int, call: _Call
    ) -> None:
        """Admit the messages from `known` on, and mark each in the memory."""
        prices = Prices(call.count_tokens)
        if call.encoder is not None and call.encoder.works_ahead:
            self._prepare(memory, messages, known, call.encoder)
        for index in range(known, len(messages)):
            tokens, reach = self._reach(memory, messages[index], call.count_tokens)
            emitted, admission = self._admit_message(messages, index, memory, prices, reach, call.encoder)
            memory.position_tokens += tokens
            call.lines += admission.lines
            call.windows += admission.windows
            untouched = emitted is _UNTOUCHED and memory.marks and not memory.position_tokens
            size = memory.marks[-1].size if untouched else memory.size()
            memory.marks.append(Mark(digests[index], emitted, size))

    def _prepare(
        self, memory: ConversationMemory, messages: Sequence[Message], known: int, encoder: RequestEncoder
    ) -> None:
        """Name the windows of all new observations at once; those of a single one are named when it is planned."""
        texts = [
            observation.text
            for index in range(known, len(messages))
            if is_observation(messages, index, self.config.observations)
            for observation in observed_texts(messages, index, 0, self.config.exclude_tools)[0]
            if not observation.excluded and is_planned(observation.text, self.config)
        ]
        if len(texts) > 1:
            ahead = windows_ahead(texts, self.config.profile, encoder, memory.lines.table)
            encoder.prepare(ahead[: max(0, self.config.max_windows - memory.embedded)])

    def _admit_message(
        self,
        messages: Sequence[Message],
        index: int,
        memory: ConversationMemory,
        prices: Prices,
        reach: int,
        encoder: RequestEncoder | None,
    ) -> tuple[Emitted, Admission]:
        if not is_observation(messages, index, self.config.observations):
            return _UNTOUCHED, _NOTHING
        total = _NOTHING
        memory.results += 1
        observations, opaque = observed_texts(messages, index, memory.results, self.config.exclude_tools)
        texts: dict[int | None, str] = {}
        for observation in observations:
            place = Surroundings(total.printed, len(observations) == 1, reach)
            admission = admit_text(observation, memory, self.config, prices, encoder, place)
            total = admission if total is _NOTHING else total.plus(admission)
            if admission.text != observation.text:
                texts[observation.part] = admission.text
        reasons = (opaque,) if opaque else tuple(sorted(total.reasons))
        emitted = Emitted(
            tuple(texts.items()), total.decisions, reasons, total.boundary_pairs, total.distances, observation=True
        )
        return emitted, total

    def _reach(
        self, memory: ConversationMemory, message: Message, count_tokens: Callable[[str], int]
    ) -> tuple[int, int]:
        """Tokens of the message, and the earliest array position that a reference in it may name.

        Distances are upper bounds: from where the target's text begins, uncompacted, to where this message ends.
        """
        limit = self.config.max_reference_distance_tokens
        if limit is None:
            return 0, 0
        tokens = MESSAGE_OVERHEAD_TOKENS + sum(map(count_tokens, printed_texts(message)))
        first = bisect_left(
            memory.sections, memory.position_tokens + tokens - limit, key=lambda section: section.position_tokens
        )
        if first < len(memory.sections):
            return tokens, memory.sections[first].start
        return tokens, len(memory.lines) if tokens <= limit else NOWHERE


@dataclass(slots=True)
class _Call:
    """One call of `compact`: its clock, its encoder, and what it counted."""

    watch: Stopwatch
    encoder: RequestEncoder | None
    count_tokens: Callable[[str], int]
    began: float
    known: float = 0.0
    lines: int = 0
    windows: int = 0

    @staticmethod
    def begin(encoder: Encoder | None, count_tokens: Callable[[str], int], salt: str, *, canonical: bool) -> _Call:
        began, watch = perf_counter(), Stopwatch()
        own = RequestEncoder(encoder, watch, salt, canonical=canonical) if encoder is not None else None
        return _Call(watch, own, watch.timed("count", count_tokens), began)

    def recognised(self) -> None:
        """The known prefix was found."""
        self.known = perf_counter()

    def work(self, known: int, new: int) -> Work:
        encoded = self.encoder.encoded if self.encoder is not None else Encoded()
        windows = max(self.windows, encoded.once + encoded.remembered)
        return Work(known, new, self.lines, windows, encoded.once, encoded.again, encoded.remembered)

    def seconds(self) -> dict[str, float]:
        return {"recognise": self.known - self.began, "total": perf_counter() - self.began, **self.watch.seconds}


def _rendered(messages: Sequence[Message], marks: Sequence[Mark]) -> list[Any]:
    """The messages with the texts that changed; the list that was given where none did."""
    changed = {index: dict(mark.emitted.texts) for index, mark in enumerate(marks) if mark.emitted.texts}
    if not changed:
        return messages if isinstance(messages, list) else list(messages)
    return [
        with_texts(message, changed[index]) if index in changed else message for index, message in enumerate(messages)
    ]
