"""ECR@tau: the most that a family of methods removes while it keeps a share tau of the evidence (tables 16 and 17)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from lam_vllm.errors import OptionError
from lam_vllm.evaluation.measures.gold import (
    NOTHING_WITNESSED,
    WRITES_NEW_TEXT,
    Figure,
    Unmeasurable,
    gold_rates,
    net_removal,
)
from lam_vllm.evaluation.measures.outcomes import rsc_drop
from lam_vllm.evaluation.rows import Row, by

FLOORS = (1.0, 0.999, 0.99, 0.95)
NONE_ADMISSIBLE = Unmeasurable("no setting is admissible")


@dataclass(frozen=True, slots=True)
class Family:
    """Methods that differ in one option; `option` is empty where there is nothing to choose."""

    method: str
    option: str = ""
    values: tuple[float, ...] = ()
    seeds: tuple[int, ...] = (0,)

    @property
    def settings(self) -> tuple[str, ...]:
        """As rows name them: `t=0.95`."""
        return tuple(f"{self.option}={value:g}" for value in self.values) or ("",)


# The paper names the ends of each grid, and t = .92 and .88; the other steps are those of its tables.
THRESHOLDS_COS = (0.80, 0.85, 0.88, 0.90, 0.92, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.999)
SEMDEDUP_THRESHOLDS_COS = (0.90, 0.92, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.999, 0.9999)
MASKING_KEPT_RESULTS = (3, 5, 10, 20, 50)
SEEDS = (0, 1, 2, 3, 4)
FAMILIES = (
    Family("l0"),
    Family("l1", "t", THRESHOLDS_COS),
    Family("paper", "t", THRESHOLDS_COS),
    Family("masking", "k", MASKING_KEPT_RESULTS),
    Family("semdedup", "t", SEMDEDUP_THRESHOLDS_COS, SEEDS),
    Family("semdedup_global", "t", SEMDEDUP_THRESHOLDS_COS, SEEDS),
)


@dataclass(frozen=True, slots=True)
class Point:
    """One setting of one family over all its seeds.

    `removal` is net, of all tokens together, the mean of the seeds. The rest is the worst of the seeds: `kept`, the
    share of witnessed gold lines (strict, micro); `losing_runs`, the share of runs with a gold patch that lost a line;
    `rsc_drop`, in 0..1.
    """

    method: str
    setting: str
    seeds: int
    removal: Figure
    kept: Figure
    losing_runs: Figure
    rsc_drop: Figure

    def admissible(self, floor: float) -> bool:
        """Whether every seed keeps at least the share `floor` of the evidence."""
        return isinstance(self.kept, float) and self.kept >= floor


@dataclass(frozen=True, slots=True)
class FloorCost:
    """What a floor lets through: how many settings are admissible, and the worst that one of them does.

    Table 16; that it means the worst is our reading, since no binding point of table 17 has its figures.
    """

    floor: float
    admissible: int
    losing_runs: Figure
    rsc_drop: Figure


def points(rows: Iterable[Row]) -> list[Point]:
    """A point for every method and setting of the rows, in the order in which they first come up.

    Raises:
        OptionError: two settings or seeds are not measured on the same runs, or one twice on the same run.
    """
    groups = by(rows, "method", "setting", "seed")
    _check_same_runs(groups)
    settings: dict[tuple[str, str], list[list[Row]]] = {}
    for (method, setting, _), of_seed in groups.items():
        settings.setdefault((method, setting), []).append(of_seed)
    return [_point(method, setting, seeds) for (method, setting), seeds in settings.items()]


def ecr(of_family: Iterable[Point], floor: float) -> Point | Unmeasurable | None:
    """The binding point of a family at this floor: the admissible one that removes most, the first of equals.

    None: no setting keeps so much. `Unmeasurable`: of none of them it is known what it keeps.
    """
    of_family = list(of_family)
    unknown = [point.kept for point in of_family if isinstance(point.kept, Unmeasurable)]
    if unknown and len(unknown) == len(of_family):
        return unknown[0]
    admissible = [point for point in of_family if point.admissible(floor)]
    return max(admissible, key=lambda point: _known(point.removal), default=None)


def floor_costs(of_families: Iterable[Point], floors: Sequence[float] = FLOORS) -> list[FloorCost]:
    """What each floor lets through, over the points of all families."""
    of_families = list(of_families)
    costs = []
    for floor in floors:
        admissible = [point for point in of_families if point.admissible(floor)]
        losing = _together(max, [point.losing_runs for point in admissible])
        drop = _together(max, [point.rsc_drop for point in admissible])
        costs.append(FloorCost(floor, len(admissible), losing, drop))
    return costs


def _check_same_runs(groups: Mapping[tuple[Any, ...], Sequence[Row]]) -> None:
    expected: list[tuple[str, str]] | None = None
    for (method, setting, seed), rows in groups.items():
        runs = sorted((row.source, row.run) for row in rows)
        expected = expected or runs
        if runs != expected or len(set(runs)) < len(runs):
            name = f"{method} {setting}, seed {seed}: {len(runs)} rows of {len(set(runs))} runs"
            raise OptionError("rows", name, f"one row for each of the {len(set(expected))} runs of the others")


def _point(method: str, setting: str, seeds: Sequence[Sequence[Row]]) -> Point:
    return Point(
        method,
        setting,
        len(seeds),
        removal=_together(fmean, [net_removal(rows) for rows in seeds]),
        kept=_together(min, [gold_rates(rows).strict_micro for rows in seeds]),
        losing_runs=_together(max, [_losing_runs(rows) for rows in seeds]),
        rsc_drop=_together(max, [rsc_drop(rows) for rows in seeds]),
    )


def _losing_runs(rows: Iterable[Row]) -> Figure:
    with_gold = [row for row in rows if row.has_gold]
    if any(row.gold_kept is None for row in with_gold):
        return WRITES_NEW_TEXT
    losing = sum(row.gold_kept != row.gold_witnessed for row in with_gold)
    return losing / len(with_gold) if with_gold else NOTHING_WITNESSED


def _known(figure: Figure) -> float:
    assert isinstance(figure, float), "rows that show evidence have tokens"
    return figure


def _together(how: Callable[[list[float]], float], figures: Sequence[Figure]) -> Figure:
    known = [figure for figure in figures if isinstance(figure, float)]
    unknown = [figure for figure in figures if isinstance(figure, Unmeasurable)]
    return unknown[0] if unknown else how(known) if known else NONE_ADMISSIBLE
