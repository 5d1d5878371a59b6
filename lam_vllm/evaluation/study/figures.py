"""Seven figures in the paper's manner, numbered as we read its list: 3, 4, 5, 6, 7, 9b and 9d.

The paper's own figures were not at hand. What each one holds follows its tables and the names of its measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from lam_vllm.bound import delta_of
from lam_vllm.evaluation.measures.by_size import by_size
from lam_vllm.evaluation.measures.gold import Figure as Share
from lam_vllm.evaluation.measures.gold import gold_rates, net_removal
from lam_vllm.evaluation.measures.layers import LayerOrders
from lam_vllm.evaluation.measures.space import WindowFigures
from lam_vllm.evaluation.rows import Row, by
from lam_vllm.evaluation.study.charts import Series, draw_bars, draw_lines, from_zero, new_figure, save, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BY_SIZE = ("exact", "guarded", "paper", "l0", "l1", "span_folding")
"""What figure 9b shows: the profiles, the paper's layers, and what public tools do; the table has every method."""
EVIDENCE_TICKS = (0.0, 0.1, 1.0, 10.0, 50.0)
"""Percent of evidence lost, on a scale that is linear up to the first tick above 0 and logarithmic behind it."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What the figures are drawn from; a figure whose part is empty is not drawn.

    `rows` of one or more settings a method (3, 4), `defaults` of one each (9b), `windows` by ascending t (5, 6),
    `layers` by ascending t (7), and the share of tokens removed by encoder (9d).
    """

    rows: Sequence[Row] = ()
    defaults: Sequence[Row] = ()
    windows: Mapping[float, WindowFigures] = field(default_factory=dict)
    layers: Mapping[float, LayerOrders] = field(default_factory=dict)
    encoders: Mapping[str, float] = field(default_factory=dict)


def draw_figures(measured: Measured, folder: Path) -> list[Path]:
    """The PNG files written into `folder`, which must be there.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    makers = {
        "figure_3": _frontier,
        "figure_4": _thresholds,
        "figure_5": _distances,
        "figure_6": _ceiling,
        "figure_7": _layers,
        "figure_9b": _sizes,
        "figure_9d": _encoders,
    }
    made = {name: make(measured) for name, make in makers.items()}
    return [save(figure, folder / f"{name}.png") for name, figure in made.items() if figure is not None]


def _frontier(measured: Measured) -> Figure | None:
    """Evidence kept against removal: a line for each family, its settings as points, its seeds as bars."""
    families = by(_with_evidence(measured.rows), "method")
    series = [_frontier_line(method, rows) for (method,), rows in families.items() if method != "none"]
    if all(len(line.x) == 1 for line in series):
        return None  # no family has a line
    figure, (ax,) = new_figure()
    draw_lines(ax, series, _evidence_axis)
    title(ax, "Evidence against removal", "tool output removed, net of references, %", "gold lines kept, %")
    return figure


def _frontier_line(method: str, rows: Sequence[Row]) -> Series:
    """Points by ascending removal, each the mean of its seeds between the lowest and the highest of them."""
    settings = [
        [(_percent(net_removal(seed)), _lost(seed)) for seed in by(group, "seed").values()]
        for group in by(rows, "setting").values()
    ]
    settings.sort(key=lambda seeds: fmean(x for x, _ in seeds))
    xs, ys = ([[point[axis] for point in seeds] for seeds in settings] for axis in (0, 1))
    seeded = any(len(seeds) > 1 for seeds in settings)
    return Series(
        method,
        [fmean(values) for values in xs],
        [fmean(values) for values in ys],
        ([min(values) for values in xs], [max(values) for values in xs]) if seeded else None,
        ([min(values) for values in ys], [max(values) for values in ys]) if seeded else None,
    )


def _thresholds(measured: Measured) -> Figure | None:
    """Removal above, evidence below, by t, for every method that has more than one."""
    lines: dict[str, dict[float, Sequence[Row]]] = {}
    for (method, setting), rows in by(measured.rows, "method", "setting").items():
        if setting.startswith("t="):
            lines.setdefault(method, {})[float(setting.removeprefix("t="))] = rows
    lines = {method: dict(sorted(by_t.items())) for method, by_t in lines.items() if len(by_t) > 1}
    if not lines:
        return None
    names = sorted({threshold for by_t in lines.values() for threshold in by_t})
    figure, (above, below) = new_figure(2)
    for ax, figure_of, kept in (
        (above, lambda rows: _percent(net_removal(rows)), lambda rows: rows),
        (below, _lost, _with_evidence),
    ):
        series = [
            Series(method, [names.index(t) for t in by_t], [figure_of(rows) for rows in by_t.values()])
            for method, by_t in lines.items()
            if all(kept(rows) for rows in by_t.values())
        ]
        draw_lines(ax, series, _evidence_axis if ax is below else from_zero)
    _threshold_axis(below, names)
    title(above, "Removal and evidence by t", "", "tool output removed, net of references, %")
    title(below, "", "t", "gold lines kept, %")
    return figure


def _distances(measured: Measured) -> Figure | None:
    """Distance of the substitutions over delta, by t."""
    found = {t: figures.distances for t, figures in measured.windows.items() if figures.distances is not None}
    if not found:
        return None
    figure, (ax,) = new_figure()
    lines = {
        "largest": [each.max / delta_of(t) for t, each in found.items()],
        "p99": [each.p99 / delta_of(t) for t, each in found.items()],
        "mean": [each.mean_over_delta for each in found.values()],
        "median": [each.median / delta_of(t) for t, each in found.items()],
    }
    ax.axhline(1.0, color="#bbbbbb", linewidth=1)
    draw_lines(ax, [Series(name, range(len(found)), values) for name, values in lines.items()])
    _threshold_axis(ax, list(found))
    title(ax, "How much of the bound is used", "t", "distance of a substitution over delta")
    return figure


def _ceiling(measured: Measured) -> Figure | None:
    """Windows that greedy removes, and what any rule within delta can remove at most, by t."""
    if not measured.windows:
        return None
    figure, (ax,) = new_figure()
    xs = range(len(measured.windows))
    attained = [100 * figures.removed for figures in measured.windows.values()]
    most = [100 * figures.ceiling for figures in measured.windows.values()]
    ax.fill_between(xs, attained, most, color="#f0f0f0", linewidth=0)
    draw_lines(ax, [Series("attained", xs, attained), Series("ceiling", xs, most)])
    _threshold_axis(ax, list(measured.windows))
    title(ax, "Windows removed, and the most that delta allows", "t", "windows removed, %")
    return figure


def _layers(measured: Measured) -> Figure | None:
    """What the layers remove alone and in both orders, and what they would if they were independent, by t."""
    if not measured.layers:
        return None
    figure, (ax,) = new_figure()
    orders = list(measured.layers.values())
    lines = {
        "L1, then L0": [order.l1_then_l0 for order in orders],
        "L0, then L1": [order.l0_then_l1 for order in orders],
        "L0": [order.l0 for order in orders],
        "L1": [order.l1 for order in orders],
        "if independent": [order.independence_estimate for order in orders],
    }
    draw_lines(
        ax, [Series(name, range(len(orders)), [100 * share for share in shares]) for name, shares in lines.items()]
    )
    _threshold_axis(ax, list(measured.layers))
    title(ax, "Order of the layers", "t", "tool output removed, gross, %")
    return figure


def _sizes(measured: Measured) -> Figure | None:
    """Removal by the size of the run's tool output, for the methods of `BY_SIZE`."""
    by_method = by([row for row in measured.defaults if row.method in BY_SIZE], "method", "setting")
    groups = {" ".join(filter(None, key)): by_size(rows) for key, rows in by_method.items()}
    sizes = sorted({each.least_tokens for bins in groups.values() for each in bins if each.least_tokens})
    if not sizes:
        return None
    figure, (ax,) = new_figure()
    series = [
        Series(
            name,
            [sizes.index(each.least_tokens) for each in bins if each.least_tokens],
            [_percent(each.removal) for each in bins if each.least_tokens],
        )
        for name, bins in groups.items()
    ]
    draw_lines(ax, series)
    ax.set_xticks(range(len(sizes)), [f"{size:,}" for size in sizes], fontsize=8)
    title(ax, "Removal by input size", "tokens of tool output in the run, from", "removed, net of references, %")
    return figure


def _encoders(measured: Measured) -> Figure | None:
    """What one t removes under each encoder."""
    if not measured.encoders:
        return None
    figure, (ax,) = new_figure()
    draw_bars(ax, list(measured.encoders), [100 * share for share in measured.encoders.values()], ".1f")
    title(
        ax,
        "Removal by encoder at t = 0.95",
        "",
        "removed by L1, then L0, net, % of the encoder's own tokens",
    )
    return figure


def _with_evidence(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.gold_kept is not None and row.gold_witnessed]


def _lost(rows: Sequence[Row]) -> float:
    return 100 - _percent(gold_rates(_with_evidence(rows)).strict_micro)


def _percent(share: Share) -> float:
    assert isinstance(share, float), "rows without a figure were left out"
    return 100 * share


def _evidence_axis(ax: Axes) -> None:
    """Percent lost as percent kept, the first parts of a percent as wide as the last tens."""
    ax.set_yscale("symlog", linthresh=EVIDENCE_TICKS[1], linscale=0.6)
    most_lost = 1.3 * max(1.0, ax.dataLim.ymax)
    ax.set_ylim(most_lost, -0.02)
    ticks = [tick for tick in EVIDENCE_TICKS if tick <= most_lost]
    ax.set_yticks(ticks, [f"{100 - tick:g}" for tick in ticks])
    ax.minorticks_off()


def _threshold_axis(ax: Axes, thresholds_cos: Sequence[float]) -> None:
    ax.set_xticks(range(len(thresholds_cos)), [f"{threshold:g}" for threshold in thresholds_cos], fontsize=8)
