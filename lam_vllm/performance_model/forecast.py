"""Runs forecast before they are deployed: what each policy costs a turn, and how many turns it can answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import TypeAlias

from lam_vllm.performance_model.capacity import exhaust_turn, turns_that_fit
from lam_vllm.performance_model.compaction import Compaction, nothing
from lam_vllm.performance_model.engine import Engine
from lam_vllm.performance_model.schedules import Costs, admit, in_place, no_compaction, suffix, wall_every_turn
from lam_vllm.performance_model.turn import TurnCost, mean
from lam_vllm.performance_model.workload import Turn, without_removal

Runs: TypeAlias = Sequence[Sequence[Turn]]
Schedule: TypeAlias = Callable[[Engine, Sequence[Turn], Compaction], Costs]

SCHEDULES: dict[str, Schedule] = {
    "admit": admit,
    "suffix": suffix,
    "in_place": in_place,
    "wall_every_turn": wall_every_turn,
}
NO_COMPACTION = "no compaction"


@dataclass(frozen=True, slots=True)
class Forecast:
    """One policy over some runs: the costs of the turns that fit without compaction, run by run, each in order.

    `answered` turns of all runs fit under the policy itself.
    """

    policy: str
    costs: tuple[Costs, ...]
    answered: int

    @property
    def turn(self) -> TurnCost:
        """The mean turn.

        Raises:
            OptionError: there is no turn.
        """
        return mean(list(chain.from_iterable(self.costs)))

    @property
    def ttft(self) -> list[float]:
        """Mean seconds to first token by turn, over the runs that have this turn."""
        longest = max(map(len, self.costs), default=0)
        return [fmean(costs[place].ttft for costs in self.costs if len(costs) > place) for place in range(longest)]


def forecast_nothing(engine: Engine, runs: Runs) -> Forecast:
    """The runs without compaction.

    Raises:
        OptionError: the weights leave no room for a KV cache.
    """
    short = comparable(engine, runs)
    answered = sum(turns_that_fit(engine, without_removal(run), admitted=False) for run in runs)
    return Forecast(NO_COMPACTION, tuple(no_compaction(engine, run) for run in short), answered)


def forecast(engine: Engine, runs: Runs, schedule: str, name: str, compaction: Compaction = nothing) -> Forecast:
    """The runs, which bring their deletion set, under this schedule; what removes is called `name`.

    Raises:
        OptionError: the weights leave no room for a KV cache.
    """
    answered = sum(turns_that_fit(engine, run, admitted=schedule == "admit") for run in runs)
    run_costs = tuple(SCHEDULES[schedule](engine, run, compaction) for run in comparable(engine, runs))
    return Forecast(f"{schedule} {name}", run_costs, answered)


def comparable(engine: Engine, runs: Runs) -> list[Sequence[Turn]]:
    """The runs, each cut after the last turn that fits without compaction, where the accounting refuses the others.

    Raises:
        OptionError: the weights leave no room for a KV cache.
    """
    if not engine.accounting.refuses:
        return list(runs)
    return [run[: turns_that_fit(engine, without_removal(run), admitted=False)] for run in runs]


def mean_growth_tokens(runs: Runs) -> float:
    """Tokens by which a turn leaves the context longer, over all turns but the first of each run; 0 where none is."""
    later = [turn.growth_tokens for run in runs for turn in run[1:]]
    return fmean(later) if later else 0.0


def full_turn(runs: Runs, limit_tokens: float) -> int | None:
    """The turn that fills a limit, at the mean growth after a mean first turn; None where the context does not grow.

    At least one run has a turn.
    """
    start = fmean(run[0].growth_tokens for run in runs if run)
    later = exhaust_turn(max(0.0, limit_tokens - start), mean_growth_tokens(runs))
    return None if later is None else 1 + later
