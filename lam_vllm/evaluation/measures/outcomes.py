"""What a compaction may mean for a run: RSC and BFR (the paper's tables 3 and 19), each with what it assumes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lam_vllm.evaluation.measures.gold import WRITES_NEW_TEXT, Figure, Unmeasurable
from lam_vllm.evaluation.rows import Row

BUDGETS_TOKENS = (8_000, 16_000, 32_000, 64_000)
RSC_ASSUMES = (
    "a run needs every gold line that it saw",
    "no line that is lost is read again",
    "a run that was not resolved stays so",
)
BFR_ASSUMES = (
    "K is 1,000 tokens of the served model",
    "only tool output counts, not the prompt, the calls or the answers",
    "that it fits is necessary for a run, not sufficient",
)
NO_OUTCOME = Unmeasurable("no run has both a gold patch and an outcome")


@dataclass(frozen=True, slots=True)
class RunShare:
    """The share of `runs` runs of which something holds, and what must be true for it to mean what it is named for."""

    value: Figure
    runs: int
    assumes: tuple[str, ...]

    def __str__(self) -> str:
        if isinstance(self.value, Unmeasurable):
            return str(self.value)
        return f"{self.value:.2%} of {self.runs} runs, assuming that {'; that '.join(self.assumes)}"


def judged(rows: Iterable[Row]) -> list[Row]:
    """The rows of runs that have both a gold patch and an outcome, the only ones of which RSC says something."""
    return [row for row in rows if row.has_gold and row.resolved is not None]


def rsc(rows: Iterable[Row]) -> RunShare:
    """Resolved and still complete: runs that were resolved and lost no gold line; rows of one method at one setting.

    With nothing removed it is the share of runs that were resolved.
    """
    rows = judged(rows)
    complete = sum(bool(row.resolved) and row.gold_kept == row.gold_witnessed for row in rows)
    return RunShare(_share(rows, complete), len(rows), RSC_ASSUMES)


def rsc_drop(rows: Iterable[Row]) -> Figure:
    """By how much RSC lies below the share of resolved runs: the share of runs that were resolved and lost a line."""
    rows = judged(rows)
    return _share(rows, sum(bool(row.resolved) and row.gold_kept != row.gold_witnessed for row in rows))


def bfr(rows: Iterable[Row], budget_tokens: int) -> RunShare:
    """Budget fit: runs whose tool output, as it is emitted, has at most `budget_tokens` tokens; rows as for `rsc`."""
    rows = list(rows)
    fit = sum(row.emitted_tokens <= budget_tokens for row in rows)
    value = fit / len(rows) if rows else Unmeasurable("there is no run")
    return RunShare(value, len(rows), BFR_ASSUMES)


def _share(rows: list[Row], hits: int) -> Figure:
    if any(row.gold_kept is None for row in rows):
        return WRITES_NEW_TEXT
    return hits / len(rows) if rows else NO_OUTCOME
