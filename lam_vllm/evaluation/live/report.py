"""What replays showed, as one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import get_args

from rich.box import SIMPLE_HEAD
from rich.table import Table

from lam_vllm.evaluation.live.replay import ReplayResult, Turn
from lam_vllm.types import Layer

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
    """A column for each run and, where there are several, one for all; off and on mean the plugin."""
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False)
    table.caption = "off, on: without and with the plugin, over the turns answered in both"
    table.add_column("", no_wrap=True)
    for result in results:
        table.add_column(result.run_id.rsplit("/", 1)[-1], justify="right", overflow="fold")
    columns = [_cells(summarise([result])) for result in results]
    if len(results) > 1:
        table.add_column("all", justify="right", style="bold")
        columns.append(_cells(summarise(results)))
    for name in columns[0]:
        table.add_row(name, *(column[name] for column in columns))
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


def _cells(summary: Summary) -> dict[str, str]:
    sides = {"off": summary.off, "on": summary.on}
    return {
        "turns answered in both": f"{summary.answered_in_both} of {summary.turns}",
        "turns rescued": str(summary.rescued),
        **{f"prompt tokens, {name}": f"{side.prompt_tokens:,}" for name, side in sides.items()},
        **{f"uncached tokens, {name}": f"{side.uncached_tokens:,}" for name, side in sides.items()},
        **{f"TTFT p50 ms, {name}": _milliseconds(side.ttft_p50_seconds) for name, side in sides.items()},
        **{f"TTFT p90 ms, {name}": _milliseconds(side.ttft_p90_seconds) for name, side in sides.items()},
        **{f"tokens removed, {layer}": f"{summary.removed_tokens[layer]:,}" for layer in get_args(Layer)},
        "delta_hat": f"{summary.delta_hat:.3f}",
        "prefix breaks": ", ".join(f"{cause} {n}" for cause, n in sorted(summary.prefix_breaks.items())) or "0",
    }


def _milliseconds(seconds: float | None) -> str:
    return NO_FIGURE if seconds is None else f"{1000 * seconds:,.0f}"
