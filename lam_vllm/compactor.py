"""The pipeline: messages in, the same messages with repeated tool output replaced by references out.

    messages -> observations -> (windows -> embeddings -> matches) -> cuts -> text -> messages

A message's output depends on the messages up to it and on the config, on nothing else: the memo of prefixes only
spares work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

from lam_vllm.account import account
from lam_vllm.admit import admit_text, is_planned
from lam_vllm.ahead import windows_ahead
from lam_vllm.config import CompactorConfig, resolved_config
from lam_vllm.encoders.base import Encoded, Encoder, Traits, traits_of
from lam_vllm.encoders.request import RequestEncoder
from lam_vllm.errors import OptionError
from lam_vllm.index import Completer, EncodedAs, Found, PrefixWindows, prefix_windows, search
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
from lam_vllm.search import open_search
from lam_vllm.shorten import Admission, Surroundings
from lam_vllm.stopwatch import Stopwatch
from lam_vllm.types import Compaction, Message, Work

MEMO_BYTES = 256_000_000
MESSAGE_OVERHEAD_TOKENS = 8
"""What a chat template prints around a message, generously: reference distances are upper bounds."""

_UNTOUCHED, _NOTHING = Emitted(), Admission()


class Compactor:
    """Replaces tool output that the conversation already holds, by the rule of its config's profile.

    `count_tokens` is the served model's tokenizer; `tokenizer_name` names it in the config digest. `config` and
    `config_digest` tell what applies. `memo` is one of its own, of `MEMO_BYTES`, unless it is shared with others. Safe
    to call from several threads at once.

    Raises:
        MissingExtraError: the profile needs an encoder and none was given.
        OptionError: the search is `pruned` and the encoder has no basis.
        InputFileError: its basis cannot be read, or is none for this encoder.
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
        traits = traits_of(encoder) if encoder is not None else Traits()
        threshold_cos = encoder.threshold_cos if encoder is not None else None
        self.config = resolved_config(config, threshold_cos, has_basis=traits.basis is not None)
        self.encoder = encoder if self.config.profile != "exact" else None
        self._embedding_error = traits.embedding_error
        self._dimension, search = self.encoder.dimension if self.encoder else 1, self.config.search
        self._search = open_search(search, traits.basis, self._dimension, traits.arrays) if self.encoder else None
        fingerprint = self.encoder.fingerprint if self.encoder else ""
        self.config_digest = self.config.digest(tokenizer_name, fingerprint)
        self._begin = partial(_Call.begin, self.encoder, count_tokens, self.config.search == "banded")
        self._memo = PrefixMemo(MEMO_BYTES) if memo is None else memo

    @property
    def memo_bytes_used(self) -> int:
        """Estimated bytes that the memo of prefixes holds."""
        return self._memo.nbytes

    def compact(
        self,
        messages: Sequence[Message],
        *,
        salt: str = "",
        use_memo: bool = True,
        canonical: bool = False,
        keep: Callable[[PrefixWindows], object] | None = None,
    ) -> Compaction:
        """The messages to render. Never changes or keeps what it is given; nothing crosses from one salt to another.

        Linear in the new messages, and in one digest of the known ones. Without `use_memo` no prefix is known and none
        is remembered. `canonical` also does without whatever makes embeddings quickly: the answer is the same. `keep`
        is given the windows and embeddings of the whole prefix, if the profile has any.

        Raises:
            EncoderError: the encoder failed.
        """
        call = self._begin(salt, canonical)
        digests = chain_digests(messages, f"{self.config_digest}\0{salt}")
        remembers = use_memo and not canonical
        memory, known = self._take(digests) if remembers else (self._empty(), 0)
        call.recognised()
        try:
            self._extend(memory, messages, digests, known, call)
            prefix = self._prefix(messages, memory, call) if keep is not None and self.encoder is not None else None
        except BaseException:
            self._memo.drop(memory)  # it may hold half a message
            raise
        marks = memory.marks[: len(messages)]
        if remembers:
            self._memo.put(memory)
        if keep is not None and prefix is not None:
            keep(prefix)
        work = call.work(known, len(messages) - known)
        turn = newest_turn(messages)
        report, decisions = account(self.config, self.config_digest, marks, turn, work, call.seconds())
        return Compaction(_rendered(messages, marks), decisions, report)

    def search(self, messages: Sequence[Message], query: str, k: int = 10, *, salt: str = "") -> Found:
        """The `k` windows of tool output that are nearest to the query by meaning, of those that `compact` looks at.

        Raises:
            OptionError: the profile is `exact`.
            EncoderError: the encoder failed.
        """
        if self.encoder is None:
            raise OptionError("profile", self.config.profile, "guarded, paper (exact has no embeddings to search)")
        with self._apart(messages, salt) as (memory, _, call):
            prefix = Completer(self.encoder).complete(salt, self._prefix(messages, memory, call))
        return search(EncodedAs.of(self.encoder).build(prefix), self.encoder, query, k, messages)

    def warm(self, messages: Sequence[Message], *, salt: str = "") -> Work:
        """What it took to have every embedding ready that `compact` of these messages will need. Nothing else remains.

        Raises:
            EncoderError: the encoder failed.
        """
        with self._apart(messages, salt) as (_, known, call):
            return call.work(known, len(messages) - known)

    def warm_text(self, text: str, *, salt: str = "") -> Work:
        """As `warm`, for one tool result whose conversation is not known: every window that may be asked about.

        Raises:
            EncoderError: the encoder failed.
        """
        call = self._begin(salt, False)
        if call.encoder is not None and is_planned(text, self.config):
            windows = windows_ahead([text], self.config.profile, call.encoder)[: self.config.max_windows]
            call.windows = len(windows)
            call.encoder.prepare(windows)
            for window in windows:
                call.encoder.embed(window)
        return call.work(0, 0)

    def _prefix(self, messages: Sequence[Message], memory: ConversationMemory, call: _Call) -> PrefixWindows:
        error = self._embedding_error if call.encoder is not None and call.encoder.guard_band else 0.0
        return prefix_windows(messages, memory.marks[: len(messages)], memory.windows.rows, self.config, error)

    @contextmanager
    def _apart(self, messages: Sequence[Message], salt: str) -> Iterator[tuple[ConversationMemory, int, _Call]]:
        """A memory of the messages that nobody is going to know, how many of them were known, and what it took."""
        call = self._begin(salt, False)
        digests = chain_digests(messages, f"{self.config_digest}\0{salt}")
        memory, known = self._take(digests, copy=True)
        try:
            self._extend(memory, messages, digests, known, call)
            yield memory, known, call
        finally:
            self._memo.drop(memory)

    def _take(self, digests: list[str], *, copy: bool = False) -> tuple[ConversationMemory, int]:
        """A memory that nobody else extends, and how many of the messages it knows."""
        memory, known = self._memo.take(digests, copy=copy)
        return (self._empty(), 0) if memory is None else (memory, known)

    def _empty(self) -> ConversationMemory:
        return ConversationMemory(RetainedWindows(self._dimension, self._search))

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
        changed, pairs = tuple(texts.items()), total.boundary_pairs
        return Emitted(changed, total.decisions, reasons, pairs, total.distances, True, total.seen), total

    def _reach(self, memory: ConversationMemory, message: Message, count: Callable[[str], int]) -> tuple[int, int]:
        """Tokens of the message, and the earliest array position that a reference in it may name.

        Distances are upper bounds: from where the target's text begins, uncompacted, to where this message ends.
        """
        limit = self.config.max_reference_distance_tokens
        if limit is None:
            return 0, 0
        tokens = MESSAGE_OVERHEAD_TOKENS + sum(map(count, printed_texts(message)))
        return tokens, memory.reach(tokens, limit)


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
    def begin(
        encoder: Encoder | None, count_tokens: Callable[[str], int], no_fast: bool, salt: str, canonical: bool
    ) -> _Call:
        began, watch, own = perf_counter(), Stopwatch(), None
        if encoder is not None:
            own = RequestEncoder(encoder, watch, salt, canonical=canonical, canonical_only=no_fast)
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
