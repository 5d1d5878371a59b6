"""What replays showed, as one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import quantiles

from rich.table import Table

from lam_vllm.evaluation.replay import ReplayResult, Turn

NO_FIGURE = "-"


@dataclass(frozen=True, slots=True)
class Side:
    """Figures of one side, plugin off or on, over the turns that both sides answered."""

    prompt_tokens: int
    uncached_tokens: int
    ttft_p50_seconds: float | None
    ttft_p90_seconds: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of one or more replays together."""

    turns: int
    answered_in_both: int
    rescued: int
    off: Side
    on: Side
    removed_tokens: Counter[str]
    delta_hat: float
    prefix_breaks: Counter[str]


def summarise(results: Sequence[ReplayResult]) -> Summary:
    """The figures of these replays, counted together."""
    pairs = [pair for result in results for pair in result.answered_in_both]
    removed: Counter[str] = Counter()
    breaks: Counter[str] = Counter()
    for result in results:
        removed.update(result.removed_tokens)
        breaks.update(result.prefix_breaks)
    return Summary(
        turns=sum(len(result.on) for result in results),
        answered_in_both=len(pairs),
        rescued=sum(result.rescued for result in results),
        off=_side([off for off, _ in pairs]),
        on=_side([on for _, on in pairs]),
        removed_tokens=removed,
        delta_hat=max((result.delta_hat for result in results), default=0.0),
        prefix_breaks=breaks,
    )


def summary_table(results: Sequence[ReplayResult], title: str) -> Table:
    """One row a run and, where there are several, one for all; each figure with the plugin off and on."""
    table = Table(title=title, show_lines=True)
    table.add_column("run", overflow="fold")
    for name in ("turns answered in both", "rescued", "prompt tokens", "uncached", "TTFT p50 ms", "TTFT p90 ms"):
        table.add_column(name, justify="right")
    for name in ("removed by layer", "delta_hat", "prefix breaks"):
        table.add_column(name, justify="right")
    for result in results:
        table.add_row(result.run_id, *_cells(summarise([result])))
    if len(results) > 1:
        table.add_row("all", *_cells(summarise(results)), style="bold")
    table.caption = "a / b: plugin off / on, over the turns answered in both; rescued: too long with it off"
    return table


def _side(turns: Sequence[Turn]) -> Side:
    usages = [turn.usage for turn in turns if turn.usage is not None]
    times = [turn.ttft_seconds for turn in turns if turn.ttft_seconds is not None]
    prompt = sum(usage.prompt_tokens for usage in usages)
    cached = sum(usage.cached_tokens for usage in usages)
    return Side(prompt, prompt - cached, _quantile(times, 50), _quantile(times, 90))


def _quantile(values: Sequence[float], percent: int) -> float | None:
    if len(values) < 2:
        return values[0] if values else None
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def _cells(summary: Summary) -> list[str]:
    off, on = summary.off, summary.on
    return [
        f"{summary.answered_in_both} of {summary.turns}",
        str(summary.rescued),
        f"{off.prompt_tokens:,} / {on.prompt_tokens:,}",
        f"{off.uncached_tokens:,} / {on.uncached_tokens:,}",
        f"{_milliseconds(off.ttft_p50_seconds)} / {_milliseconds(on.ttft_p50_seconds)}",
        f"{_milliseconds(off.ttft_p90_seconds)} / {_milliseconds(on.ttft_p90_seconds)}",
        _counts(summary.removed_tokens),
        f"{summary.delta_hat:.3f}",
        _counts(summary.prefix_breaks) if summary.prefix_breaks.total() else "0",
    ]


def _milliseconds(seconds: float | None) -> str:
    return NO_FIGURE if seconds is None else f"{1000 * seconds:,.0f}"


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()) if count) or "0"
