"""The turns of a recorded run as the performance model takes them: what arrived, what a method took out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.method import Method
from lam_vllm.messages import is_observation, printed_texts
from lam_vllm.performance_model.workload import Turn
from lam_vllm.types import Message

TokenCounter = Callable[[str], int]


@dataclass(slots=True)
class _Arrival:
    """What has come since the last answer, in tokens; `stale` are those kept behind the first that was changed."""

    arriving: int = 0
    other: int = 0
    removed: int = 0
    stale: int = 0
    changed: bool = False


def turns_of(run: Run, method: Method, count_tokens: TokenCounter, observations: str = "tool") -> tuple[Turn, ...]:
    """A turn for each answer of the run, up to its last; what a chat template adds around messages is not counted.

    An empty answer to nothing new is no turn: no request can be told from it. `observations` as the compactor has it.

    Raises:
        Whatever the method raises.
    """
    return tuple(_turns(run.messages, method.shorten(run), count_tokens, observations))


def _turns(
    before: Sequence[Message], after: Sequence[Message], count_tokens: TokenCounter, observations: str
) -> Iterator[Turn]:
    arrival = _Arrival()
    for index, (message, shortened) in enumerate(zip(before, after, strict=True)):
        if message.get("role") == "assistant" and index:
            decoded = _tokens(message, count_tokens)
            if arrival.arriving or decoded:
                yield _turn(arrival, decoded)
            arrival = _Arrival()
        else:
            observed = is_observation(before, index, observations)
            _add(arrival, message, shortened, count_tokens, observed=observed)


def _turn(arrival: _Arrival, decoded: int) -> Turn:
    """The turn; a method that made more of its text than there was, all stubs deducted, has removed nothing."""
    removed = max(0, arrival.removed)
    stale = arrival.stale + decoded if removed else 0
    return Turn(arrival.arriving, decoded, removed, stale, arrival.other)


def _add(
    arrival: _Arrival, message: Message, shortened: Message, count_tokens: TokenCounter, *, observed: bool
) -> None:
    tokens = _tokens(message, count_tokens)
    kept = _tokens(shortened, count_tokens)
    arrival.arriving += tokens
    arrival.removed += tokens - kept
    if not observed:
        arrival.other += tokens
    if arrival.changed:
        arrival.stale += kept
    elif message != shortened:
        arrival.changed = True
        arrival.stale += kept - count_tokens(_common_start(message, shortened))


def _tokens(message: Message, count_tokens: TokenCounter) -> int:
    return sum(map(count_tokens, printed_texts(message)))


def _common_start(message: Message, shortened: Message) -> str:
    """What both print before the first character that differs."""
    texts = ("\n".join(printed_texts(each)) for each in (message, shortened))
    return "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False)))
