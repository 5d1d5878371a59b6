"""The few kinds of panels that the dashboard is made of, and how Grafana's own builders make them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any, TypeAlias

from grafana_foundation_sdk.builders import common, heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders.dashboard import ThresholdsConfig
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    GraphThresholdsStyleMode,
    StackingMode,
)
from grafana_foundation_sdk.models.common import LegendDisplayMode as LegendMode
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
HERE = 'job=~"$job", instance=~"$instance"'
ABOVE_ZERO = 1e-12
"""As a threshold: what must be 0 is red at once when it is not."""

Built: TypeAlias = Builder[models.Panel]


@dataclass(frozen=True)
class Query:
    """A query, with `$here` where the labels that the variables choose belong, and what its series are called."""

    expression: str
    legend: str = ""

    def builder(self, place: int = 0) -> prometheus.Dataquery:
        """The query as Grafana knows it, the one at `place` in its panel."""
        built = prometheus.Dataquery().expr(self.expression.replace("$here", HERE)).datasource(SOURCE)
        return built.ref_id(ascii_uppercase[place]).legend_format(self.legend)


@dataclass(frozen=True)
class Panel(ABC):
    """A panel. `worry` is the value from which on it is red, None where no value is bad by itself."""

    title: str
    text: str
    queries: tuple[Query, ...]
    unit: str = "short"
    worry: float | None = None
    width: int = 8

    @abstractmethod
    def builder(self, number: int) -> Built:
        """The panel as Grafana knows it; `number` is its own in the dashboard."""

    def _described(self, panel: Any, number: int) -> Any:
        """What every kind of panel has."""
        return panel.id(number).title(self.title).description(self.text).datasource(SOURCE)

    def _thresholds(self) -> ThresholdsConfig:
        if self.worry is None:
            return ThresholdsConfig().steps([models.Threshold(value=None, color="blue")])
        good, bad = models.Threshold(value=None, color="green"), models.Threshold(value=self.worry, color="red")
        return ThresholdsConfig().steps([good, bad])


class Number(Panel):
    """One figure, an eighth of the width."""

    def builder(self, number: int) -> stat.Panel:
        """The panel as Grafana knows it."""
        panel: stat.Panel = self._described(stat.Panel(), number).unit(self.unit).thresholds(self._thresholds())
        panel = panel.color_mode(BigValueColorMode.BACKGROUND).graph_mode(BigValueGraphMode.NONE).no_value("no traffic")
        return panel.span(3).height(4).with_target(self.queries[0].builder().instant())


class Lines(Panel):
    """Series over time; a dashed line where worry begins."""

    def builder(self, number: int) -> timeseries.Panel:
        """The panel as Grafana knows it."""
        panel: timeseries.Panel = (
            self._described(timeseries.Panel(), number).unit(self.unit).thresholds(self._thresholds())
        )
        legend = (
            common.VizLegendOptions().show_legend(True).display_mode(LegendMode.TABLE).calcs(["lastNotNull", "max"])
        )
        panel = panel.legend(legend).min(0).span(self.width).height(9).fill_opacity(10)
        if self.worry is not None:
            panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED))
        for place, query in enumerate(self.queries):
            panel.with_target(query.builder(place))
        return panel


class Stack(Lines):
    """Series over time that add up to a whole."""

    def builder(self, number: int) -> timeseries.Panel:
        """The panel as Grafana knows it."""
        return super().builder(number).stacking(common.StackingConfig().mode(StackingMode.NORMAL)).fill_opacity(40)


class Buckets(Panel):
    """A histogram over time: the query gives a rate by `le`."""

    def builder(self, number: int) -> heatmap.Panel:
        """The panel as Grafana knows it."""
        panel: heatmap.Panel = self._described(heatmap.Panel(), number).span(self.width).height(9).calculate(False)
        colors = heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Blues").steps(32)
        target = self.queries[0].builder().format(PromQueryFormat.HEATMAP).legend_format("{{le}}")
        return panel.color(colors).y_axis(heatmap.YAxisConfig().unit(self.unit)).with_target(target)


class Rows(Panel):
    """One row for each series that there is now, over the whole width: its labels, a column each."""

    def builder(self, number: int) -> table.Panel:
        """The panel as Grafana knows it."""
        panel: table.Panel = self._described(table.Panel(), number).span(24).height(5).no_value("none")
        hidden = models.DataTransformerConfig(
            id_val="organize",
            options={"excludeByName": dict.fromkeys(("Time", "Value", "__name__", "alertstate"), True)},
        )
        return panel.with_transformation(hidden).with_target(
            self.queries[0].builder().instant().format(PromQueryFormat.TABLE)
        )


def quantiles(buckets: str, name: str, by: str = "") -> tuple[Query, ...]:
    """The median and the 90th percentile of a histogram, one pair for each value of the label `by`."""
    grouped = f"le, {by}" if by else "le"
    rate = f"sum by ({grouped}) (rate({buckets}[$__rate_interval]))"
    return tuple(
        Query(f"histogram_quantile({share}, {rate})", f"{short} {name}")
        for share, short in ((0.5, "p50"), (0.9, "p90"))
    )


def summed(counter: str, by: str = "") -> Query:
    """What was added to a counter in each step."""
    grouped = f" by ({by}) " if by else ""
    return Query(f"sum{grouped}(increase({counter}[$__rate_interval]))", f"{{{{{by}}}}}" if by else counter)


def over_the_time_shown(counter: str) -> tuple[Query]:
    """What was added to a counter in all."""
    return (Query(f"sum(increase({counter}[$__range]))"),)
