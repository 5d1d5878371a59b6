"""What each turn of a run costs by when things are removed: before prefill, after it, or at a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lam_vllm.errors import OptionError
from lam_vllm.performance_model.compaction import Compaction, nothing
from lam_vllm.performance_model.engine import Engine
from lam_vllm.performance_model.turn import TurnCost, reprefill_seconds, turn_cost, with_extra
from lam_vllm.performance_model.workload import Turn, without_removal

Costs = tuple[TurnCost, ...]
"""One for each turn, in order."""


def no_compaction(engine: Engine, run: Sequence[Turn]) -> Costs:
    """Nothing is removed.

    Raises:
        OptionError: a turn's context cannot be.
    """
    return admit(engine, without_removal(run), nothing)


def admit(engine: Engine, run: Sequence[Turn], compaction: Compaction) -> Costs:
    """What arrives is tested, and shortened, before it is prefilled; the cached prefix stays.

    Raises:
        OptionError: a turn's context cannot be.
    """
    costs, cached = [], 0.0
    for turn in run:
        tested = engine.accounting.examined_tokens(turn)
        costs.append(with_extra(_cost(engine, cached, turn, admitted=True), compaction(engine, tested)))
        cached += turn.growth_tokens
    return tuple(costs)


def suffix(engine: Engine, run: Sequence[Turn], compaction: Compaction) -> Costs:
    """What arrives is prefilled whole and shortened at the next turn, which prefills what lies behind the first change.

    Raises:
        OptionError: a turn's context cannot be.
    """
    costs, cached, stale = [], 0.0, 0.0
    for turn in run:
        tested = compaction(engine, engine.accounting.examined_tokens(turn))
        costs.append(_after_prefill(engine, cached, turn, tested, min(stale, cached)))
        cached += turn.growth_tokens
        stale = turn.stale_tokens
    return tuple(costs)


def in_place(engine: Engine, run: Sequence[Turn], compaction: Compaction) -> Costs:
    """The same, but every turn prefills the whole cache again (the paper's delete-in-place, table 8).

    Raises:
        OptionError: a turn's context cannot be.
    """
    return _rebuilt_every_turn(engine, run, lambda _, turn: compaction(engine, engine.accounting.examined_tokens(turn)))


def wall_every_turn(engine: Engine, run: Sequence[Turn], compaction: Compaction) -> Costs:
    """Every turn compacts the whole context and prefills it again (the paper's `wall`, table 2).

    Raises:
        OptionError: a turn's context cannot be.
    """
    return _rebuilt_every_turn(engine, run, lambda cached, _: compaction(engine, cached))


def wall_budget(
    engine: Engine, run: Sequence[Turn], compaction: Compaction, budget_tokens: float, removal: float | None = None
) -> Costs:
    """Nothing is removed until a turn would exceed the budget; then the context is compacted and prefilled again.

    An event removes what the deletion set has gathered since the last one, and what lies behind the first of it is
    prefilled again; or, where `removal` is given, that share of the whole context, however often it was shortened
    before (masking, summaries).

    Raises:
        OptionError: the budget is not above 0, `removal` is not between 0 and 1, or a turn exceeds the budget after all
            that can be removed.
    """
    _check_budget(budget_tokens)
    if removal is not None and not 0 < removal < 1:
        raise OptionError("removal", removal, "a share above 0 and below 1")
    costs: list[TurnCost] = []
    cached, gathered, intact = 0.0, 0.0, None
    for turn in run:
        seconds, stale = 0.0, 0.0
        needed = turn.arriving_tokens + turn.decoded_tokens
        if cached + needed > budget_tokens:
            seconds = compaction(engine, cached)
            cached = max(0.0, cached - gathered) if removal is None else (1 - removal) * cached
            stale = cached - (intact or 0.0)
            gathered, intact = 0.0, None
        if cached + needed > budget_tokens:
            allowed = f"at least {cached + needed:,.0f} for turn {len(costs) + 1}"
            raise OptionError("budget_tokens", budget_tokens, allowed)
        costs.append(_after_prefill(engine, cached, turn.whole, seconds, stale))
        if removal is None and turn.removed_tokens and intact is None:
            intact = max(0.0, cached + turn.growth_tokens - turn.stale_tokens)
        cached += needed
        gathered += turn.removed_tokens
    return tuple(costs)


def turns_before_wall(run: Sequence[Turn], budget_tokens: float) -> int:
    """How many turns `wall_budget` does when it removes the deletion set: those that fit with all of it removed.

    Raises:
        OptionError: the budget is not above 0.
    """
    _check_budget(budget_tokens)
    cached = 0.0
    for number, turn in enumerate(run):
        if cached + turn.arriving_tokens + turn.decoded_tokens > budget_tokens:
            return number
        cached += turn.growth_tokens
    return len(run)


def _check_budget(budget_tokens: float) -> None:
    if not budget_tokens > 0:
        raise OptionError("budget_tokens", budget_tokens, "a number above 0")


def _rebuilt_every_turn(engine: Engine, run: Sequence[Turn], compacting: Callable[[float, Turn], float]) -> Costs:
    """Every turn prefills its whole cache again; `compacting` tells its seconds from the cached tokens and the turn."""
    costs, cached = [], 0.0
    for turn in run:
        costs.append(_after_prefill(engine, cached, turn, compacting(cached, turn), cached))
        cached += turn.growth_tokens
    return tuple(costs)


def _cost(engine: Engine, cached: float, turn: Turn, *, admitted: bool) -> TurnCost:
    accounting = engine.accounting
    return turn_cost(
        engine,
        accounting.prefilled_tokens(turn, admitted=admitted),
        turn.decoded_tokens,
        accounting.context_tokens(cached, turn, admitted=admitted),
    )


def _after_prefill(engine: Engine, cached: float, turn: Turn, compaction: float, stale: float) -> TurnCost:
    """A turn that is prefilled whole, in one pass with the last `stale` of the `cached` tokens."""
    cost = _cost(engine, cached, turn, admitted=False)
    arriving = engine.accounting.prefilled_tokens(turn, admitted=False)
    return with_extra(cost, compaction, reprefill_seconds(engine, arriving, stale, cached))
