"""Recorded turns in the order in which they arrive, and how much the encoder has to do for each."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, cycle
from typing import TypeAlias

from remembered import RememberedEncoder

from lam_vllm import Compactor, CompactorConfig
from lam_vllm.encoders import Encoder, load_encoder
from lam_vllm.errors import OptionError
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.live.dialects import dialect
from lam_vllm.evaluation.live.replay import prompts
from lam_vllm.types import Embedding, Message

Prompt: TypeAlias = Sequence[Message]
AT_A_TIME = 4
"""Conversations that take turns; one that has ended gives its place to the next."""
LEAST_TURNS = 6
"""Runs of fewer turns that fit are left out: their first turn, which is not measured, would be much of the work."""
TEMPLATE_TOKENS = 8
"""What the chat template prints around a message, generously."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One request that arrives at `at_seconds`: the prompt behind a tool result, in a conversation with this number.

    `windows`, and `encoder_tokens` in them, are those that it is the first of its conversation to need.
    """

    at_seconds: float
    conversation: int
    messages: Prompt
    windows: int
    encoder_tokens: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """Turns by their time, and the turn before the first of each conversation, which opens it and is not measured."""

    openings: Sequence[Turn]
    turns: Sequence[Turn]


def arrivals(rate: float, seconds: float, seed: int, first: float) -> Iterator[float]:
    """Poisson arrivals at `rate` a second, for `seconds` from `first` on; the same for one seed."""
    gaps = random.Random(seed)
    at = first + gaps.expovariate(rate)
    while at < first + seconds:
        yield at
        at += gaps.expovariate(rate)


def recorded_traffic(
    runs: Sequence[Run], times: Sequence[float], most_tokens: int, count_tokens: Callable[[str], int]
) -> Traffic:
    """A turn for each of these times: of the runs in order, some at a time, as long as their prompts fit.

    When all runs are through they begin again, as new conversations.

    Raises:
        OptionError: no run has enough turns that fit.
    """
    talks = [asked for run in runs if len(asked := _fitting(run, most_tokens, count_tokens)) >= LEAST_TURNS]
    if not talks:
        raise OptionError("prompt_tokens", most_tokens, f"enough for {LEAST_TURNS} turns of some run")
    work = _EncoderWork(count_tokens)
    openings, turns = {}, []
    for at, (number, (first, messages)) in zip(times, _interleaved(cycle(talks)), strict=False):
        if number not in openings:
            openings[number] = Turn(0.0, number, first, *work.of(number, first))
        turns.append(Turn(at, number, messages, *work.of(number, messages)))
    return Traffic(list(openings.values()), turns)


def _fitting(run: Run, most_tokens: int, count_tokens: Callable[[str], int]) -> list[Prompt]:
    """The prompts of the run that end in a tool result and have at most so many tokens, as a client sends them."""

    def tokens(messages: Prompt) -> int:
        return sum(TEMPLATE_TOKENS + count_tokens(str(message.get("content") or "")) for message in messages)

    asked = [messages for messages in prompts(run.messages) if messages[-1].get("role") == "tool"]
    chat = dialect("chat")
    return [chat.body(messages, 1)["messages"] for messages in asked if tokens(messages) <= most_tokens]


def _interleaved(talks: Iterable[Sequence[Prompt]]) -> Iterator[tuple[int, tuple[Prompt, Prompt]]]:
    """The first prompt of a conversation and a later one, with its number; some conversations take turns."""
    numbered = enumerate(talks)
    lanes = [_lane(numbered) for _ in range(AT_A_TIME)]
    return chain.from_iterable(zip(*lanes, strict=False))


def _lane(numbered: Iterator[tuple[int, Sequence[Prompt]]]) -> Iterator[tuple[int, tuple[Prompt, Prompt]]]:
    """One conversation after the other, each taken from what all lanes share."""
    for number, (first, *later) in numbered:
        for messages in later:
            yield number, (first, messages)


class _EncoderWork:
    """Compacts turn by turn, as the server will, and counts the tokens of the windows that are encoded."""

    def __init__(self, count_tokens: Callable[[str], int]) -> None:
        self._count_tokens = count_tokens
        self._encoder = _NotingEncoder(load_encoder("minilm"))
        self._talks: dict[int, tuple[Compactor, set[str]]] = {}

    def of(self, conversation: int, messages: Prompt) -> tuple[int, int]:
        """Windows that this turn is the first of its conversation to need, and their tokens."""
        if conversation not in self._talks:
            compactor = Compactor(CompactorConfig(profile="guarded"), self._count_tokens, self._encoder)
            self._talks[conversation] = compactor, set()
        compactor, known = self._talks[conversation]
        self._encoder.texts.clear()
        compactor.compact(messages)
        new = set(self._encoder.texts) - known
        known |= new
        return len(new), sum(len(self._encoder.token_offsets(text)) for text in new)


class _NotingEncoder(RememberedEncoder):
    """Notes what it is asked for."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder)
        self.texts: list[str] = []

    def encode(self, text: str) -> Embedding:
        self.texts.append(text)
        return super().encode(text)
