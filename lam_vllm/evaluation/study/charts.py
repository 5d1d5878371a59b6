"""Line and bar charts in one manner: colours that the colour-blind can tell apart, names at the lines, no frame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lam_vllm.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Those of Okabe and Ito, the yellow left out, which white paper swallows."""
GREY = "#666666"
DASHES = ("-", "--", ":")
SIZE_INCHES = (6.4, 4.0)
DPI = 160
LABEL_GAP = 0.055
"""How far two names must lie apart in height, as a share of the chart's, unless `LABEL_WIDTH` lies between them."""
LABEL_WIDTH = 0.25
CHARACTER_WIDTH = 0.012
"""Of a name, as a share of the chart's width."""
INK_GAP, INK_SAMPLES = 0.005, 1_000
"""What is this near a line's end is the line itself; about so many samples of a line show where it lies."""
MARKED_POINTS = 24
"""Of a line with more points so many carry a mark, evenly spread; the line goes through all."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line: its name, points in order, and where they have them the lowest and highest x and y over seeds."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    x_range: tuple[Sequence[float], Sequence[float]] | None = None
    y_range: tuple[Sequence[float], Sequence[float]] | None = None
    broken: bool = False
    """Whether the line has gaps, so that one which lies under it is seen."""


def new_figure(panels: int = 1) -> tuple[Figure, list[Axes]]:
    """An empty figure with panels one above the other that share their x axis.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise MissingExtraError("figures", "eval", "the tables")
    from matplotlib.figure import Figure

    width, height = SIZE_INCHES
    figure = Figure(figsize=(width, height * (1 + 0.7 * (panels - 1))), dpi=DPI, layout="constrained")
    axes = figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0]
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", color="#e6e6e6", linewidth=0.8)
        ax.set_axisbelow(True)
        ax.tick_params(length=0, labelcolor=GREY)
    return figure, list(axes)


def from_zero(ax: Axes) -> None:
    """Lets the y axis begin at 0 where nothing lies below it; for `draw_lines`."""
    ax.set_ylim(bottom=min(0.0, ax.dataLim.ymin))


def draw_lines(
    ax: Axes, series: Iterable[Series], set_axis: Callable[[Axes], None] = from_zero, levels: Sequence[float] = ()
) -> None:
    """Each series as a line with points, its bars over seeds, and its name at its right end.

    `set_axis` is called between the lines and their names, which need to know where on the paper a line ends. At the
    heights `levels` something lies across the whole chart.
    """
    ends = []
    for place, line in enumerate(series):
        colour = COLOURS[place % len(COLOURS)]
        ax.plot(
            line.x,
            line.y,
            color=colour,
            linestyle="--" if line.broken else DASHES[place // len(COLOURS) % len(DASHES)],
            marker="o",
            markevery=marked(len(line.x)),
            markersize=3.5,
            linewidth=1.6,
        )
        if line.x_range is not None and line.y_range is not None:
            ax.errorbar(
                line.x,
                line.y,
                xerr=_reach(line.x, line.x_range),
                yerr=_reach(line.y, line.y_range),
                fmt="none",
                ecolor=colour,
                elinewidth=1.2,
                capsize=2,
            )
        ends.append((line.name, line.x[-1], line.y[-1], colour))
    set_axis(ax)
    _name_ends(ax, ends, levels)


def marked(points: int) -> list[int]:
    """Which of so many points carry a mark, ascending: all, or some with the first and the last among them."""
    shown = min(points, MARKED_POINTS)
    return sorted({round((points - 1) * step / max(1, shown - 1)) for step in range(shown)})


def draw_bars(ax: Axes, names: Sequence[str], values: Sequence[float], form: str) -> None:
    """Level bars, the first on top, each with its value."""
    places = range(len(names))
    ax.barh(places, values, color=COLOURS[0], height=0.6)
    ax.set_yticks(places, names)
    ax.invert_yaxis()
    ax.grid(visible=False)
    ax.spines["bottom"].set_visible(False)
    ax.set_xticks([])
    for place, value in enumerate(values):
        ax.annotate(format(value, form), (value, place), xytext=(4, 0), textcoords="offset points", va="center")


def title(ax: Axes, text: str, x: str, y: str) -> None:
    """What the panel shows and what its axes count; the y axis is named above it, where it reads level."""
    ax.set_title(f"{text}\n", loc="left", fontsize=10.5, fontweight="bold")
    ax.annotate(y, (0, 1.02), xycoords="axes fraction", fontsize=8.5, color=GREY)
    ax.set_xlabel(x, fontsize=8.5, color=GREY)


def save(figure: Figure, path: Path) -> Path:
    """Writes the figure as PNG, without a date, so that the same figures give the same file."""
    figure.savefig(path, format="png", metadata={"Software": None})
    return path


def _reach(middle: Sequence[float], limits: tuple[Sequence[float], Sequence[float]]) -> list[list[float]]:
    """How far below and above the middle the limits lie; a mean may miss the limits of equal values by rounding."""
    low, high = limits
    return [
        [max(0.0, point - end) for point, end in zip(middle, low, strict=True)],
        [max(0.0, end - point) for point, end in zip(middle, high, strict=True)],
    ]


def _name_ends(ax: Axes, ends: list[tuple[str, float, float, str]], levels: Sequence[float]) -> None:
    """Names in the lines' colours right of their ends, each at the nearest height where it touches nothing else."""
    ax.autoscale_view()
    to_share = ax.transData + ax.transAxes.inverted()
    ink = _ink(ax, levels)
    placed: list[tuple[float, float]] = []
    for (across, end), (name, x, _, colour) in sorted((tuple(to_share.transform(end[1:3])), end) for end in ends):
        aside = [up for other, up in placed if abs(across - other) < LABEL_WIDTH]
        right = across + 2 * INK_GAP + CHARACTER_WIDTH * len(name)
        under = ink[(ink[:, 0] > across + INK_GAP) & (ink[:, 0] < right), 1]
        free = [height for height in _heights(end) if all(abs(height - up) >= LABEL_GAP for up in aside)]
        clear = (height for height in free if not (abs(under - height) < LABEL_GAP / 2).any())
        height = next(clear, free[0] if free else end)  # a full chart has names on top of one another
        placed.append((across, height))
        ax.annotate(
            name,
            (x, height),
            xycoords=ax.get_xaxis_transform(),
            xytext=(6, 0),
            textcoords="offset points",
            color=colour,
            fontsize=8.5,
            va="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.75},
        )


def _ink(ax: Axes, levels: Sequence[float]) -> NDArray[np.float64]:
    """Where lines and levels lie, closely sampled: (points, [x, y]) float64, shares of the chart."""
    to_share = ax.transData + ax.transAxes.inverted()
    corners = [to_share.transform(line.get_xydata()) for line in ax.get_lines() if line.get_marker() == "o"]
    heights = [to_share.transform((ax.get_xlim()[0], level))[1] for level in levels]
    corners += [np.array([[0.0, height], [1.0 + LABEL_WIDTH, height]]) for height in heights]
    return np.concatenate([np.empty((0, 2)), *map(_sampled, corners)])


def _sampled(corners: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points of the pieces between (corners, [x, y]), evenly spread in each."""
    steps = np.linspace(0.0, 1.0, max(2, INK_SAMPLES // len(corners)))[:, None, None]
    between: NDArray[np.float64] = corners[:-1] + steps * np.diff(corners, axis=0)
    return between.reshape(-1, 2)


def _heights(end: float) -> list[float]:
    """Heights in the chart, the nearest to `end` first."""
    steps = 200
    return sorted((step / steps for step in range(4, steps + 1)), key=lambda height: abs(height - end))
