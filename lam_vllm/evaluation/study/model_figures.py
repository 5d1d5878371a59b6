"""Four figures of the performance model in the paper's manner, numbered as we read its list: 1, 8, 9a and 9c.

The paper's own figures were not at hand: what each one holds follows the tables and claims that go with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lam_vllm.evaluation.study.charts import GREY, Series, draw_lines, from_zero, new_figure, save, title
from lam_vllm.performance_model.capacity import most_context_tokens
from lam_vllm.performance_model.compaction import (
    Compaction,
    llmlingua2,
    near_duplicates,
    repeated_lines,
    semdedup,
    stages,
    summarise_afresh,
)
from lam_vllm.performance_model.device import Device
from lam_vllm.performance_model.engine import Engine
from lam_vllm.performance_model.forecast import Forecast
from lam_vllm.performance_model.turn import turn_cost

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 24
"""Of a line over many turns."""
COMPACTIONS: Mapping[str, Compaction] = {
    "summaries": summarise_afresh(10),
    "LLMLingua-2": llmlingua2,
    "LAM": near_duplicates,
    "SemDeDup": semdedup,
    "LAM, embeddings known": lambda engine, tokens: stages(engine, tokens).after_encoding,
    "L0": repeated_lines,
}
"""What figure 8 compares, the slowest first."""
SIZES_TOKENS = (1_000, 4_000, 16_000, 64_000, 256_000, 1_000_000)
CONTEXTS_TOKENS = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000)
BATCHES = (1, 8, 32)


@dataclass(frozen=True, slots=True)
class Modelled:
    """What the figures are drawn from.

    `cached_tokens` are what the context holds after each turn, by policy; `devices` those that figure 8 sets one above
    the other; `arriving_tokens` and `decoded_tokens` the mean turn, of which figure 9a says what its context is worth.
    """

    engine: Engine
    forecasts: Sequence[Forecast]
    cached_tokens: Mapping[str, Sequence[float]]
    devices: Sequence[Device]
    arriving_tokens: float
    decoded_tokens: float


def draw_model_figures(modelled: Modelled, folder: Path) -> list[Path]:
    """The PNG files written into `folder`, which must be there.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    makers = {
        "figure_1": _schedules,
        "figure_8": _compactions,
        "figure_9a": _shares,
        "figure_9c": _memory,
    }
    return [save(make(modelled), folder / f"{name}.png") for name, make in makers.items()]


def _schedules(modelled: Modelled) -> Figure:
    """Seconds to the first token by turn, a line for each policy: the part of a turn that a schedule changes most."""
    figure, (ax,) = new_figure()
    draw_lines(ax, [_over_turns(each.policy, each.ttft) for each in modelled.forecasts], _log_seconds)
    title(ax, f"When things are removed, {_where(modelled.engine)}", "turn", "seconds to the first token")
    return figure


def _compactions(modelled: Modelled) -> Figure:
    """Seconds of one compaction by the tokens that it looks at, a panel for each device."""
    figure, axes = new_figure(len(modelled.devices))
    for ax, device in zip(axes, modelled.devices, strict=True):
        engine = replace(modelled.engine, device=device)
        series = [
            Series(name, SIZES_TOKENS, [seconds(engine, tokens) for tokens in SIZES_TOKENS])
            for name, seconds in COMPACTIONS.items()
        ]
        draw_lines(ax, series, _log_both)
        ax.set_xticks(SIZES_TOKENS, [f"{size:,}" for size in SIZES_TOKENS], fontsize=8)
        ax.minorticks_off()
        title(ax, f"What deciding costs on {device.name}", "", "seconds of a compaction")
    axes[-1].set_xlabel("tokens", fontsize=8.5, color=GREY)
    return figure


def _shares(modelled: Modelled) -> Figure:
    """phi by context, a line for each batch, as far as the contexts can be."""
    figure, (ax,) = new_figure()
    fixed = modelled.arriving_tokens + modelled.decoded_tokens
    series = []
    for batch in BATCHES:
        engine = replace(modelled.engine, batch=batch)
        most = most_context_tokens(engine) if engine.accounting.refuses else CONTEXTS_TOKENS[-1]
        possible = [size for size in CONTEXTS_TOKENS if fixed <= size <= most]
        costs = [turn_cost(engine, modelled.arriving_tokens, modelled.decoded_tokens, size) for size in possible]
        if costs:
            series.append(Series(f"batch {batch}", possible, [100 * cost.phi for cost in costs]))
    draw_lines(ax, series, _log_contexts)
    ax.set_xticks(CONTEXTS_TOKENS, [f"{size:,}" for size in CONTEXTS_TOKENS], fontsize=8)
    ax.minorticks_off()
    title(ax, f"What the context is of a turn, {_where(modelled.engine)}", "tokens of context", "phi, %")
    return figure


def _memory(modelled: Modelled) -> Figure:
    """Tokens of KV cache by turn, and what there is room for."""
    figure, (ax,) = new_figure()
    most = most_context_tokens(modelled.engine)
    ax.axhline(most, color="#bbbbbb", linewidth=1)
    ax.annotate("what fits", (0, most), xycoords=ax.get_yaxis_transform(), fontsize=8.5, color=GREY, va="bottom")
    draw_lines(ax, [_over_turns(name, sizes) for name, sizes in modelled.cached_tokens.items()])
    ax.yaxis.set_major_formatter("{x:,.0f}")
    title(ax, f"How full the cache is, {_where(modelled.engine)}", "turn", "tokens of one request")
    return figure


def _over_turns(name: str, values: Sequence[float]) -> Series:
    """Some of the values, evenly spread, the first and the last among them."""
    last = len(values) - 1
    places = sorted({round(last * step / (POINTS - 1)) for step in range(POINTS)})
    return Series(name, [place + 1 for place in places], [values[place] for place in places])


def _where(engine: Engine) -> str:
    return f"{engine.model.name} on {engine.device.name}, {engine.accounting.name}"


def _log_seconds(ax: Axes) -> None:
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter("{x:g}")
    ax.minorticks_off()


def _log_both(ax: Axes) -> None:
    ax.set_xscale("log")
    _log_seconds(ax)


def _log_contexts(ax: Axes) -> None:
    ax.set_xscale("log")
    from_zero(ax)
