"""Many runs together: what is removed, how much of the gold patch and of the lines is left, which lines are lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeAlias

from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.evidence import gold_lines
from lam_vllm.evaluation.method import Method
from lam_vllm.evaluation.rows import Row

KEEPS_ALL = ("none", "l0")


@dataclass(frozen=True, slots=True)
class Unmeasurable:
    """Stands where a figure would: this measure says nothing here, and why."""

    reason: str

    def __str__(self) -> str:
        return f"not measurable: {self.reason}"


Figure: TypeAlias = float | Unmeasurable
"""A share in 0..1, or the reason why there is none. Never 0 for what was not measured."""

WRITES_NEW_TEXT = Unmeasurable("writes new text")
NOTHING_WITNESSED = Unmeasurable("no run shows a line of its gold patch")
NOTHING_SHOWN = Unmeasurable("no run has tool output")


@dataclass(frozen=True, slots=True)
class GoldRates:
    """Shares of the witnessed gold lines that are kept, over `runs` runs that witness at least one.

    Micro counts every line once, macro every run. Strict asks for the line itself; relaxed is content with a reference
    that can be written out from the compacted messages alone. The paper's evidence is strict and micro (its table 3).
    """

    runs: int
    witnessed: int
    strict_micro: Figure
    strict_macro: Figure
    relaxed_micro: Figure
    relaxed_macro: Figure


@dataclass(frozen=True, slots=True)
class LostLine:
    """A line of a run's gold patch that an observation showed and none shows any more."""

    source: str
    run: str
    line: str


def net_removal(rows: Iterable[Row]) -> Figure:
    """Share of the tokens of all rows' tool output together that is not emitted; references count as emitted."""
    rows = list(rows)
    tokens = sum(row.observation_tokens for row in rows)
    return 1 - sum(row.emitted_tokens for row in rows) / tokens if tokens else NOTHING_SHOWN


def gold_rates(rows: Iterable[Row]) -> GoldRates:
    """Evidence kept, from the rows of one method at one setting."""
    rows = [row for row in rows if row.gold_witnessed]
    strict = [(row.gold_kept, row.gold_witnessed) for row in rows]
    relaxed = [(row.gold_relaxed, row.gold_witnessed) for row in rows]
    return GoldRates(
        runs=len(rows),
        witnessed=sum(row.gold_witnessed for row in rows),
        strict_micro=_micro(strict, NOTHING_WITNESSED),
        strict_macro=_macro(strict, NOTHING_WITNESSED),
        relaxed_micro=_micro(relaxed, NOTHING_WITNESSED),
        relaxed_macro=_macro(relaxed, NOTHING_WITNESSED),
    )


def line_retention(rows: Iterable[Row]) -> Figure:
    """Share of the distinct lines of the rows' runs that can still be read, every line counted once per run."""
    return _micro([(row.readable_lines, row.distinct_lines) for row in rows], NOTHING_SHOWN)


def word_retention(rows: Iterable[Row]) -> Figure:
    """The same for the words of lines that are too long to be judged as lines."""
    return _micro([(row.readable_words, row.long_words) for row in rows], Unmeasurable("no line is that long"))


def lost_lines(method: Method, runs: Iterable[Run]) -> Iterator[LostLine] | Unmeasurable:
    """Every gold line that `method` loses, in the order of the runs and of their patches; computed as it is asked for.

    Raises, while it is read, what the method raises.
    """
    if not method.verbatim:
        return WRITES_NEW_TEXT
    return (
        LostLine(run.source, run.id, line)
        for run in runs
        if run.gold_patch
        for line in gold_lines(run.messages, method.shorten(run), run.gold_patch).lost
    )


def harness_faults(rows: Iterable[Row]) -> list[str]:
    """What in these rows cannot be, one sentence each; empty when the harness measures right.

    No compaction and L0 keep all evidence, since L0 leaves the first of equal lines.
    """
    losing = [row for row in rows if row.method in KEEPS_ALL and row.gold_kept != row.gold_witnessed]
    return [f"{row.method} keeps {row.gold_kept} of {row.gold_witnessed} gold lines of {row.run}" for row in losing]


def _micro(counts: Sequence[tuple[int | None, int]], where_empty: Unmeasurable) -> Figure:
    if any(part is None for part, _ in counts):
        return WRITES_NEW_TEXT
    whole = sum(whole for _, whole in counts)
    return sum(part or 0 for part, _ in counts) / whole if whole else where_empty


def _macro(counts: Sequence[tuple[int | None, int]], where_empty: Unmeasurable) -> Figure:
    if any(part is None for part, _ in counts):
        return WRITES_NEW_TEXT
    return fmean((part or 0) / whole for part, whole in counts) if counts else where_empty
