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

COMPACTIONS: Mapping[str, Compaction] = {
    "summaries": summarise_afresh(10),
    "LLMLingua-2": llmlingua2,
    "LAM": near_duplicates,
    "SemDeDup": semdedup,
    "LAM, embeddings known": lambda engine, tokens: stages(engine, tokens).after_encoding,
    "L0": repeated_lines,
}
"""What figure 8 compares, the slowest first.

That the order is the same on both of its devices is no measurement: the A100's rates of a compactor are GB10's, the
encoder's scaled by the rate of matrix products.
"""
COVERED = "SemDeDup"
"""Its line lies on that of LAM."""
SIZES_TOKENS = (1_000, 4_000, 16_000, 64_000, 256_000, 1_000_000)
CONTEXTS_TOKENS = (1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000)
BATCHES = (1, 8, 32)


@dataclass(frozen=True, slots=True)
class Modelled:
    """What the figures are drawn from.

    `cached_tokens` are what the context holds after each turn that fits, by policy; `devices` those that figure 8 sets
    one above the other; `arriving_tokens` and `decoded_tokens` the mean turn, of which figure 9a says what its context
    is worth; `runs` so many, over which what stands by turn is a mean.
    """

    engine: Engine
    forecasts: Sequence[Forecast]
    cached_tokens: Mapping[str, Sequence[float]]
    devices: Sequence[Device]
    arriving_tokens: float
    decoded_tokens: float
    runs: int = 1


def draw_model_figures(modelled: Modelled, folder: Path) -> list[Path]:
    """The PNG files written into `folder`, which must be there.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    return [save(figure, folder / f"{name}.png") for name, figure in model_figures(modelled).items()]


def model_figures(modelled: Modelled) -> dict[str, Figure]:
    """The figures by name.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    return {
        "figure_1": _schedules(modelled),
        "figure_8": _compactions(modelled),
        "figure_9a": _shares(modelled),
        "figure_9c": _memory(modelled),
    }


def _schedules(modelled: Modelled) -> Figure:
    """Seconds to the first token by turn, a line for each policy: the part of a turn that a schedule changes most."""
    figure, (ax,) = new_figure()
    draw_lines(ax, [_over_turns(each.policy, each.ttft) for each in modelled.forecasts], _log_seconds)
    about = f"When things are removed\n{_where(modelled.engine)}, batch {modelled.engine.batch}"
    title(ax, about, _turns_axis(modelled), "seconds to the first token")
    return figure


def _compactions(modelled: Modelled) -> Figure:
    """Seconds of one compaction by the tokens that it looks at, a panel for each device, all with the same axes."""
    figure, axes = new_figure(len(modelled.devices))
    panels = [_seconds_of_compactions(replace(modelled.engine, device=device)) for device in modelled.devices]
    every = [seconds for series in panels for line in series for seconds in line.y if seconds > 0]
    for ax, device, series in zip(axes, modelled.devices, panels, strict=True):
        ax.set_ylim(min(every) / 2, 2 * max(every))
        draw_lines(ax, series, _log_both)
        ax.set_xticks(SIZES_TOKENS, [f"{size:,}" for size in SIZES_TOKENS], fontsize=8)
        ax.minorticks_off()
        title(ax, f"What deciding costs on {device.name}", "", "seconds of a compaction")
    axes[-1].set_xlabel("tokens", fontsize=8.5, color=GREY)
    return figure


def _seconds_of_compactions(engine: Engine) -> list[Series]:
    return [
        Series(name, SIZES_TOKENS, [seconds(engine, size) for size in SIZES_TOKENS], broken=name == COVERED)
        for name, seconds in COMPACTIONS.items()
    ]


def _shares(modelled: Modelled) -> Figure:
    """phi by context, a line for each batch, the engine's own among them, as far as the contexts can be."""
    figure, (ax,) = new_figure()
    fixed = modelled.arriving_tokens + modelled.decoded_tokens
    series = []
    for batch in sorted({*BATCHES, modelled.engine.batch}):
        engine = replace(modelled.engine, batch=batch)
        most = most_context_tokens(engine) if engine.accounting.refuses else CONTEXTS_TOKENS[-1]
        possible = [size for size in CONTEXTS_TOKENS if fixed <= size <= most]
        costs = [turn_cost(engine, modelled.arriving_tokens, modelled.decoded_tokens, size) for size in possible]
        if costs:
            series.append(Series(f"batch {batch}", possible, [100 * cost.phi for cost in costs]))
    draw_lines(ax, series, _log_contexts)
    ax.set_xticks(CONTEXTS_TOKENS, [f"{size:,}" for size in CONTEXTS_TOKENS], fontsize=8)
    ax.minorticks_off()
    title(ax, f"What the context is of a turn\n{_where(modelled.engine)}", "tokens of context", "phi, %")
    return figure


def _memory(modelled: Modelled) -> Figure:
    """Tokens of KV cache by turn as far as they fit, and what there is room for."""
    figure, (ax,) = new_figure()
    engine = modelled.engine
    most = most_context_tokens(engine)
    what = "window" if engine.accounting.refuses and most == engine.model.window_tokens else "memory"
    ax.axhline(most, color="#bbbbbb", linewidth=1)
    at = ax.get_yaxis_transform()
    ax.annotate(f"{what}: {most:,.0f} tokens", (0, most), (4, 3), at, "offset points", fontsize=8.5, color=GREY)
    lines = [_over_turns(name, sizes) for name, sizes in modelled.cached_tokens.items()]
    draw_lines(ax, lines, _with_room_above, levels=(most,))
    ax.yaxis.set_major_formatter("{x:,.0f}")
    about = f"How full the cache is\n{_where(engine)}, batch {engine.batch}"
    title(ax, about, _turns_axis(modelled), "tokens of one request")
    return figure


def _over_turns(name: str, values: Sequence[float]) -> Series:
    return Series(name, range(1, len(values) + 1), values)


def _turns_axis(modelled: Modelled) -> str:
    return "turn" if modelled.runs == 1 else f"turn, mean over those of {modelled.runs:,} runs that have it"


def _where(engine: Engine) -> str:
    return f"{engine.model.name} on {engine.device.name}, accounting {engine.accounting.name}"


def _with_room_above(ax: Axes) -> None:
    """For the name of a level that lies across the chart's top."""
    ax.set_ylim(0, 1.15 * ax.dataLim.ymax)


def _log_seconds(ax: Axes) -> None:
    ax.set_yscale("log")
    ax.minorticks_off()


def _log_both(ax: Axes) -> None:
    ax.set_xscale("log")
    _log_seconds(ax)


def _log_contexts(ax: Axes) -> None:
    ax.set_xscale("log")
    from_zero(ax)
