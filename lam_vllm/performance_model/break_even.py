"""Where testing before prefill begins to pay: least removal, slowest compactor, shortest prefill, rarest break."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain

from lam_vllm.performance_model.compaction import Compaction, nothing
from lam_vllm.performance_model.engine import Engine
from lam_vllm.performance_model.forecast import Runs
from lam_vllm.performance_model.invalidation import break_seconds
from lam_vllm.performance_model.schedules import Costs, admit, no_compaction
from lam_vllm.performance_model.turn import TurnCost, mean
from lam_vllm.performance_model.workload import removing

HALVINGS = 20
"""A millionth of where the search began."""


@dataclass(frozen=True, slots=True)
class BreakEven:
    """What must hold for `admit` to be no slower than no compaction over the same turns, in seconds per turn.

    `removal`: least share of tool output that must go; None where even all of it would not do. `tokens_per_second`: the
    slowest compactor with which what is removed pays; None where it saves no time at all. `free_prefill_tokens`: up to
    here a prefill takes no longer than reading the weights once, so that removal saves none of it.
    `broken_prefix_seconds`: of one cached prefix that is lost whole, mean over where it may happen; 0 where no turn has
    one. `turns_a_break`: in so many turns admission saves as much; None where it saves nothing.
    """

    removal: float | None
    tokens_per_second: float | None
    free_prefill_tokens: float
    broken_prefix_seconds: float
    turns_a_break: float | None


def break_even(engine: Engine, runs: Runs, compaction: Compaction) -> BreakEven:
    """The break-even points of these runs, which bring their deletion set.

    Raises:
        OptionError: there is no turn, or a context cannot be.
    """
    plain = _mean(no_compaction(engine, run) for run in runs)
    saved = plain.total - _mean(admit(engine, run, nothing) for run in runs).total
    paid = plain.total - _mean(admit(engine, run, compaction) for run in runs).total
    broken = _broken_prefix_seconds(engine, runs, compaction)
    turns = list(chain.from_iterable(runs))
    tested = sum(map(engine.accounting.examined_tokens, turns)) / len(turns)
    return BreakEven(
        removal=break_even_removal(engine, runs, compaction),
        tokens_per_second=tested / saved if saved > 0 and tested else None,
        free_prefill_tokens=free_prefill_tokens(engine),
        broken_prefix_seconds=broken,
        turns_a_break=broken / paid if paid > 0 else None,
    )


def break_even_removal(engine: Engine, runs: Runs, compaction: Compaction) -> float | None:
    """The least share of all tool output whose removal pays for the compaction; None where no share does.

    Raises:
        OptionError: there is no turn, or a context cannot be.
    """
    plain = _mean(no_compaction(engine, run) for run in runs).total

    def pays(share: float) -> bool:
        return _mean(admit(engine, removing(run, share), compaction) for run in runs).total <= plain

    return _least(pays, 1.0) if pays(1.0) else None


def free_prefill_tokens(engine: Engine) -> float:
    """How many tokens are prefilled in the time that reading the weights takes; 0 where it is not counted, or where it
    is part of a fixed time that was measured.
    """
    if engine.served or not engine.accounting.reads_weights_in_prefill:
        return 0.0
    model = engine.model
    per_token = 2 * model.active_parameters / engine.device.prefill_rate
    enough = engine.read_seconds(model.weight_bytes) / per_token
    return _least(lambda tokens: engine.read_seconds(model.read_bytes(tokens)) <= tokens * per_token, enough)


def _broken_prefix_seconds(engine: Engine, runs: Runs, compaction: Compaction) -> float:
    seconds = list(chain.from_iterable(break_seconds(engine, run, compaction) for run in runs))
    return sum(seconds) / len(seconds) if seconds else 0.0


def _least(holds: Callable[[float], bool], high: float) -> float:
    """The least number up to `high`, where it holds, from which on it holds."""
    low = 0.0
    if holds(low):
        return low
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _mean(costs: Iterable[Costs]) -> TurnCost:
    return mean(list(chain.from_iterable(costs)))
