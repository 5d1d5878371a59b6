"""What is sent: the first turns of recorded runs, and each turn's prompt under every schedule. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile

from lam_vllm import Compactor, CompactorConfig
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.live.replay import prompts
from lam_vllm.performance_model.workload import Turn
from lam_vllm.types import Message

SCHEDULES = ("none", "admit", "in_place", "wall", "rebuild_all")
Tokens = Callable[[Sequence[Message]], Sequence[int]]
"""The token ids of a prompt, template and all."""


@dataclass(frozen=True)
class Stretch:
    """The first turns of a run. `ends` are the numbers of messages in its prompts, ascending.

    `whole` are the messages of the last prompt as recorded, `shortened` the same after the deletion set. What becomes
    of a message depends on those up to it alone, so any of them may stand in a prompt in either form.
    """

    run_id: str
    source: str
    ends: tuple[int, ...]
    whole: tuple[Message, ...]
    shortened: tuple[Message, ...]

    def prompt(self, turn: int, shortened: int) -> list[Message]:
        """The prompt of this turn (from 0) with its first `shortened` messages after deletion, the others whole."""
        end = self.ends[turn]
        return [*self.shortened[: min(shortened, end)], *self.whole[shortened:end]]

    @property
    def earlier(self) -> tuple[int, ...]:
        """For each turn the messages that an earlier prompt had."""
        return (0, *self.ends[:-1])


def prompts_of(stretch: Stretch, schedule: str, tokens: Tokens) -> list[list[Message]]:
    """The prompts that are sent under this schedule, in order.

    `none`: as recorded. `admit`: all that arrives is shortened at once. `in_place`: what arrives is whole, and
    shortened from the next turn on. `rebuild_all`: the same prompts, sent so that nothing is cached. `wall`: whole
    until a prompt exceeds `least_budget`; then all that was there before is shortened.
    """
    shortened = {
        "none": lambda: (0,) * len(stretch.ends),
        "admit": lambda: stretch.ends,
        "in_place": lambda: stretch.earlier,
        "rebuild_all": lambda: stretch.earlier,
        "wall": lambda: tuple(_at_wall(stretch, least_budget(stretch, tokens), tokens)),
    }[schedule]()
    return [stretch.prompt(turn, messages) for turn, messages in enumerate(shortened)]


def least_budget(stretch: Stretch, tokens: Tokens) -> int:
    """Tokens of the longest prompt after all that can be removed before its turn: with fewer a turn goes unanswered."""
    return max(len(tokens(stretch.prompt(turn, before))) for turn, before in enumerate(stretch.earlier))


def _at_wall(stretch: Stretch, budget: int, tokens: Tokens) -> Iterator[int]:
    shortened = 0
    for turn, before in enumerate(stretch.earlier):
        if len(tokens(stretch.prompt(turn, shortened))) > budget:
            shortened = before
        yield shortened


def stretches(
    runs: Iterable[Run],
    turns: int,
    most_tokens: int,
    each: int,
    total: int,
    tokens: Tokens,
    count: Callable[[str], int],
) -> list[Stretch]:
    """The first `turns` turns of the runs that are sent.

    Of every source the `each` runs with the fewest tokens over all these prompts, and of those `total`; taken are only
    runs whose prompts have at most `most_tokens` and from which something is removed before the last turn, so that
    every schedule has something to do.
    """
    asked = ((run, prompts(run.messages)[:turns]) for run in runs)
    fitting = [(run, each) for run, each in asked if len(each) == turns and len(tokens(each[-1])) <= most_tokens]
    found = [
        (sum(len(tokens(prompt)) for prompt in each), stretch)
        for stretch, each in ((_stretch(run, each, count), each) for run, each in fitting)
        if _changes(stretch)
    ]
    found.sort(key=lambda pair: (pair[0], pair[1].run_id))
    sources = sorted({stretch.source for _, stretch in found})
    few = [pair for source in sources for pair in islice((p for p in found if p[1].source == source), each)]
    return [stretch for _, stretch in sorted(few, key=lambda pair: pair[0])[:total]]


def _stretch(run: Run, asked: Sequence[Sequence[Message]], count: Callable[[str], int]) -> Stretch:
    whole = tuple(asked[-1])
    shortened = Compactor(CompactorConfig(profile="exact"), count).compact(list(whole)).messages
    return Stretch(run.id, run.source, tuple(map(len, asked)), whole, tuple(shortened))


def _changes(stretch: Stretch) -> bool:
    before = stretch.earlier[-1]
    return stretch.shortened[:before] != stretch.whole[:before]


@dataclass(frozen=True)
class Prefill:
    """What a prompt finds in the cache, and what it does not."""

    uncached_tokens: int
    cached_tokens: int


def prefills(sent: Sequence[Sequence[int]], block_tokens: int, *, fresh: bool = False) -> list[Prefill]:
    """What each prompt of a conversation finds, by token ids, when nothing is evicted; nothing at all where `fresh`.

    A cache keeps whole blocks, and the last token is computed again whatever is cached: vLLM needs its logits.
    """
    found = []
    for place, prompt in enumerate(sent):
        common = max((shared_tokens(prompt, other) for other in sent[:place]), default=0)
        cached = 0 if fresh else min(common, len(prompt) - 1) // block_tokens * block_tokens
        found.append(Prefill(len(prompt) - cached, cached))
    return found


def shared_tokens(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens from the first on are the same."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def model_turns(stretch: Stretch, tokens: Tokens) -> tuple[Turn, ...]:
    """The stretch as the performance model takes it: recorded answers arrive with the next turn, nothing is decoded."""
    turns, before = [], (0, 0)
    for turn, (end, earlier) in enumerate(zip(stretch.ends, stretch.earlier, strict=True)):
        whole, kept, late = (tokens(stretch.prompt(turn, shortened)) for shortened in (0, end, earlier))
        arriving, removed = len(whole) - before[0], len(late) - len(kept)
        stale = len(kept) - shared_tokens(late, kept) if removed else 0
        turns.append(Turn(arriving, 0, removed, stale))
        before = len(whole), len(kept)
    return tuple(turns)
