"""What it costs when a cached prefix is lost: evicted, edited by its client, or rewritten by a rule that looks back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from lam_vllm.errors import OptionError
from lam_vllm.performance_model.compaction import Compaction
from lam_vllm.performance_model.engine import Engine
from lam_vllm.performance_model.schedules import Costs, admit
from lam_vllm.performance_model.turn import reprefill_seconds
from lam_vllm.performance_model.workload import Turn


def with_breaks(engine: Engine, run: Sequence[Turn], compaction: Compaction, intact: Mapping[int, float]) -> Costs:
    """`admit`, but before some turns, numbered from 0, the cache keeps only so many first tokens of its prefix.

    The rest is prefilled again, in one pass with what arrives; later turns find it in the cache.

    Raises:
        OptionError: a turn's context cannot be, no such turn is in the run, or its cache is shorter than what stays.
    """
    costs = list(admit(engine, run, compaction))
    cached = list(accumulate((turn.growth_tokens for turn in run), initial=0.0))
    for number, kept in intact.items():
        if not 0 <= number < len(run):
            raise OptionError("turn", number, f"0 to {len(run) - 1}")
        if not 0 <= kept <= cached[number]:
            raise OptionError("intact tokens", kept, f"0 to the {cached[number]:g} that turn {number} finds")
        arriving = engine.accounting.prefilled_tokens(run[number], admitted=True)
        again = reprefill_seconds(engine, arriving, cached[number] - kept, cached[number])
        costs[number] = replace(costs[number], reprefill=again)
    return tuple(costs)


def break_seconds(engine: Engine, run: Sequence[Turn], compaction: Compaction) -> list[float]:
    """What losing the whole prefix costs by itself, before each turn but the first, which has none.

    Raises:
        OptionError: a turn's context cannot be.
    """
    everywhere = with_breaks(engine, run, compaction, dict.fromkeys(range(1, len(run)), 0.0))
    return [cost.reprefill for cost in everywhere[1:]]
