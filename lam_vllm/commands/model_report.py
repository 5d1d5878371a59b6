"""What the performance model says of some runs: every policy, the same under a budget, and where it begins to pay."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lam_vllm.errors import OptionError
from lam_vllm.performance_model.break_even import BreakEven, break_even
from lam_vllm.performance_model.capacity import most_context_tokens
from lam_vllm.performance_model.compaction import Compaction
from lam_vllm.performance_model.engine import Engine
from lam_vllm.performance_model.forecast import (
    NO_COMPACTION,
    SCHEDULES,
    Forecast,
    Runs,
    comparable,
    forecast,
    forecast_nothing,
)
from lam_vllm.performance_model.schedules import Costs, admit, no_compaction, turns_before_wall, wall_budget
from lam_vllm.performance_model.workload import Turn, without_removal


@dataclass(frozen=True, slots=True)
class Profile:
    """The runs with what this profile removes of each turn, and what deciding that costs.

    `goes_on`: no end was asked for, so that turns like the last one follow until the context is full.
    """

    name: str
    runs: Runs
    compaction: Compaction
    goes_on: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """The first profile is the one that words and single tables are about.

    `schedules` by profile and schedule; `budgeted` under a budget of `budget_tokens`, empty where not one turn fits
    into it.
    """

    engine: Engine
    profiles: Sequence[Profile]
    plain: Forecast
    schedules: Mapping[tuple[str, str], Forecast]
    budget_tokens: float
    budgeted: Sequence[Forecast]
    break_even: BreakEven

    @property
    def first(self) -> Profile:
        """The first profile."""
        return self.profiles[0]

    def of_first(self, schedule: str) -> Forecast:
        """Its forecast under this schedule."""
        return self.schedules[self.first.name, schedule]


def make_report(engine: Engine, profiles: Sequence[Profile], budget_tokens: float) -> Report:
    """The report on these profiles; the budget is cut to what fits.

    Raises:
        OptionError: the budget is not above 0; the weights leave no room; not even one turn fits.
    """
    if not budget_tokens > 0:
        raise OptionError("budget_tokens", budget_tokens, "a number above 0")
    first = profiles[0]
    fitting = [run for run in comparable(engine, first.runs) if run]
    if not fitting:
        shortest = min(run[0].arriving_tokens + run[0].decoded_tokens for run in first.runs)
        fits = f"at most {most_context_tokens(engine):,.6g}, what fits for each of a batch of {engine.batch:,}"
        raise OptionError("tokens of the shortest first turn", shortest, fits)
    budget_tokens = min(budget_tokens, most_context_tokens(engine))
    return Report(
        engine,
        profiles,
        forecast_nothing(engine, first.runs),
        {
            (each.name, schedule): forecast(engine, each.runs, schedule, each.name, each.compaction)
            for each in profiles
            for schedule in SCHEDULES
        },
        budget_tokens,
        _budgeted(engine, first, budget_tokens),
        break_even(engine, fitting, first.compaction),
    )


def _budgeted(engine: Engine, profile: Profile, budget_tokens: float) -> list[Forecast]:
    """No compaction while it fits; admission, and compaction when the budget is hit, over the turns both can do."""
    plain = _forecast(
        NO_COMPACTION,
        [without_removal(run) for run in profile.runs],
        budget_tokens,
        lambda run: no_compaction(engine, run),
    )
    admitted = _forecast(
        f"admit {profile.name}", profile.runs, budget_tokens, lambda run: admit(engine, run, profile.compaction)
    )
    walled = _forecast(
        f"wall_budget {profile.name}",
        profile.runs,
        budget_tokens,
        lambda run: wall_budget(engine, run, profile.compaction, budget_tokens),
    )
    return [each for each in (plain, admitted, walled) if each.answered]


def _forecast(name: str, runs: Runs, budget_tokens: float, schedule: Callable[[Sequence[Turn]], Costs]) -> Forecast:
    costs = tuple(schedule(run[: turns_before_wall(run, budget_tokens)]) for run in runs)
    return Forecast(name, costs, sum(map(len, costs)))
