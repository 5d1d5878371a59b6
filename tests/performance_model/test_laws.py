"""Laws of the model over devices, models, batches and deletion sets that nobody chose."""

from __future__ import annotations

from dataclasses import astuple, replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lam_vllm.performance_model.accounting import EXACT, PAPER
from lam_vllm.performance_model.break_even import break_even_removal, free_prefill_tokens
from lam_vllm.performance_model.capacity import contexts, kv_capacity_tokens, most_context_tokens, turns_that_fit
from lam_vllm.performance_model.compaction import (
    Compaction,
    llmlingua2,
    near_duplicates,
    nothing,
    repeated_lines,
    semdedup,
    shared_lines,
    stages,
    summarise_afresh,
    summarise_cached,
)
from lam_vllm.performance_model.device import Constant
from lam_vllm.performance_model.engine import Engine
from lam_vllm.performance_model.forecast import SCHEDULES
from lam_vllm.performance_model.growth import arrival_next, snapshot_next, snapshot_steady_tokens
from lam_vllm.performance_model.invalidation import with_breaks
from lam_vllm.performance_model.model import LLAMA_3_1_8B, Model
from lam_vllm.performance_model.presets import GB10, PRESETS
from lam_vllm.performance_model.schedules import (
    Costs,
    admit,
    in_place,
    no_compaction,
    suffix,
    turns_before_wall,
    wall_budget,
)
from lam_vllm.performance_model.turn import mean, total, turn_cost
from lam_vllm.performance_model.workload import Turn, removing, steady_run, without_removal

SLACK = 1 + 1e-9
MIXTURE = Model("8 of 64", 30e9, 6e9, 48, 4096, 98_304, 131_072, experts=64, experts_per_token=8)
ROOMY = replace(GB10, memory=Constant(1e15, "B", "a test", "estimated"))
METHODS = (nothing, shared_lines, near_duplicates, repeated_lines, semdedup, llmlingua2, summarise_cached(10))

accountings = st.sampled_from([PAPER, EXACT])
devices = st.sampled_from([replace(each, memory=ROOMY.memory) for each in PRESETS.values()])
models = st.sampled_from([LLAMA_3_1_8B, MIXTURE])
engines = st.builds(Engine, devices, models, st.integers(1, 64), accountings)
methods = st.sampled_from(METHODS)


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    arriving, decoded = draw(st.integers(0, 4_000)), draw(st.integers(0, 500))
    other = draw(st.integers(0, arriving))
    removed = draw(st.integers(0, arriving - other))
    stale = draw(st.integers(0, arriving - removed + decoded)) if removed else 0
    return Turn(arriving, decoded, removed, stale, other)


runs = st.lists(turns(), min_size=1, max_size=12)


@settings(deadline=None)
@given(engines, st.integers(1, 2_000), st.integers(1, 500), st.integers(2_500, 120_000))
def test_phi_is_a_share_and_rises_with_context_and_batch(
    engine: Engine, prefilled: int, decoded: int, context: int
) -> None:
    cost = turn_cost(engine, prefilled, decoded, context)
    assert 0 < cost.phi < 1
    assert cost.ceiling == pytest.approx(1 / (1 - cost.phi))
    assert turn_cost(engine, prefilled, decoded, context + 1_000).phi > cost.phi
    assert turn_cost(replace(engine, batch=engine.batch + 1), prefilled, decoded, context).phi > cost.phi


@settings(deadline=None)
@given(engines, runs, methods)
def test_no_schedule_is_ahead_of_admission(engine: Engine, run: list[Turn], method: Compaction) -> None:
    """For any deletion set, in total and turn by turn."""
    admitted, later, whole = (schedule(engine, run, method) for schedule in (admit, suffix, in_place))
    for early, late, last in zip(admitted, later, whole, strict=True):
        assert early.total <= late.total * SLACK and late.total <= last.total * SLACK
        assert early.ttft <= late.ttft * SLACK and late.ttft <= last.ttft * SLACK


@settings(deadline=None)
@given(engines, runs, methods, st.data())
def test_breaks_cost_between_nothing_and_a_prefill_of_the_whole_cache(
    engine: Engine, run: list[Turn], method: Compaction, data: st.DataObject
) -> None:
    broken = data.draw(st.sets(st.integers(0, len(run) - 1)))
    share = data.draw(st.floats(0, 1))
    cached = [0.0, *contexts(engine, run, admitted=True)]
    some = with_breaks(engine, run, method, {turn: share * cached[turn] for turn in broken})
    every = with_breaks(engine, run, method, dict.fromkeys(range(len(run)), 0.0))
    for turn, (whole, found, worst) in enumerate(zip(admit(engine, run, method), some, every, strict=True)):
        assert replace(found, reprefill=0.0) == whole
        assert 0 <= found.reprefill <= worst.reprefill * SLACK
        assert turn in broken or found == whole


@settings(deadline=None)
@given(engines, runs)
def test_what_is_removed_before_prefill_never_makes_a_turn_longer(engine: Engine, run: list[Turn]) -> None:
    for early, plain in zip(admit(engine, run, nothing), no_compaction(engine, run), strict=True):
        assert all(part <= whole * SLACK for part, whole in zip(astuple(early), astuple(plain), strict=True))


@settings(deadline=None)
@given(engines, runs, methods, st.sampled_from(sorted(SCHEDULES)))
def test_parts_are_the_whole(engine: Engine, run: list[Turn], method: Compaction, schedule: str) -> None:
    costs = SCHEDULES[schedule](engine, run, method)
    for cost in costs:
        assert cost.total == pytest.approx(sum(astuple(cost)))
        assert cost.total == pytest.approx(
            cost.weights + cost.prefill + cost.context + cost.compaction + cost.reprefill + cost.fixed
        )
        assert all(part >= 0 for part in astuple(cost))
    assert total(costs).total == pytest.approx(sum(cost.total for cost in costs))
    assert mean(costs).total * len(costs) == pytest.approx(total(costs).total)


@given(engines, st.integers(1, 1_000_000))
def test_stages_are_the_whole_compaction(engine: Engine, tokens: int) -> None:
    found = stages(engine, tokens)
    assert found.total == pytest.approx(sum(astuple(found)))
    assert found.encode + found.after_encoding == pytest.approx(found.total)


@given(engines, st.integers(2, 64))
def test_capacity_is_inverse_in_the_batch(engine: Engine, batch: int) -> None:
    one, many = replace(engine, batch=1), replace(engine, batch=batch)
    assert kv_capacity_tokens(many) * batch == pytest.approx(kv_capacity_tokens(one))


@given(engines, runs)
def test_contexts_grow_by_what_stays(engine: Engine, run: list[Turn]) -> None:
    run = [Turn(1, 0), *run]
    seen = contexts(engine, run, admitted=True)
    grown = 0.0
    for context, turn in zip(seen, run, strict=True):
        grown += turn.growth_tokens
        assert context == pytest.approx(grown)
    assert all(late >= early for early, late in zip(seen, contexts(engine, run, admitted=False), strict=True))
    assert seen[-1] == pytest.approx(contexts(engine, without_removal(run), admitted=True)[-1] - removed(run))


def removed(run: list[Turn]) -> float:
    return sum(turn.removed_tokens for turn in run)


@settings(deadline=None)
@given(st.builds(Engine, st.sampled_from(list(PRESETS.values())), st.just(LLAMA_3_1_8B), st.integers(1, 8)), runs)
def test_turns_that_fit_are_those_that_do_not_raise(engine: Engine, run: list[Turn]) -> None:
    run = run * 10
    fit = turns_that_fit(engine, run, admitted=True)
    assert len(admit(engine, run[:fit], nothing)) == fit
    if fit < len(run):
        assert contexts(engine, run, admitted=True)[fit] > most_context_tokens(engine)


@settings(deadline=None)
@given(engines, runs, methods, st.integers(1_000, 60_000))
def test_a_budget_is_kept(engine: Engine, run: list[Turn], method: Compaction, budget: int) -> None:
    fit = run[: turns_before_wall(run, budget)]
    costs = wall_budget(engine, fit, method, budget)
    assert len(costs) == len(fit)
    plain = no_compaction(engine, fit)
    assert all(context <= budget * SLACK for context in contexts_seen(engine, fit, costs))
    if sum(turn.arriving_tokens + turn.decoded_tokens for turn in fit) <= budget:
        assert costs == plain, "nothing happens before the budget is hit"


def contexts_seen(engine: Engine, run: list[Turn], costs: Costs) -> list[float]:
    """What the answers' steps were charged for, of every turn that has an answer, in tokens."""
    per_token = engine.kv_read_seconds(1)
    own = 0.5 if engine.accounting is EXACT else 0.0  # a step does not read those of the answer that come after it
    return [
        cost.kv_read / per_token / turn.decoded_tokens + own * turn.decoded_tokens
        for turn, cost in zip(run, costs, strict=True)
        if turn.decoded_tokens
    ]


@settings(deadline=None, max_examples=20)
@given(engines, st.floats(0.15, 0.8), st.floats(0.1, 0.15), st.integers(8_000, 32_000))
def test_a_method_that_keeps_less_costs_less_under_a_budget(
    engine: Engine, removal: float, more: float, budget: int
) -> None:
    """Where deciding costs nothing, over so many turns that single events do not count."""
    run = steady_run(10 * budget // 637, 637, 39)
    less, most = (mean(wall_budget(engine, run, nothing, budget, share)).total for share in (removal, removal + more))
    assert most < less


@settings(deadline=None, max_examples=50)
@given(engines, st.floats(1e3, 1e7), st.integers(2, 12))
def test_from_the_break_even_on_removal_pays(engine: Engine, rate: float, turns: int) -> None:
    slow = replace(engine, device=replace(engine.device, exact_rate=Constant(rate, "tok/s", "a test", "estimated")))
    run = steady_run(turns, 800, 100, start_tokens=2_000)
    least = break_even_removal(slow, [run], shared_lines)
    plain = mean(no_compaction(slow, run)).total
    if least is None:
        assert mean(admit(slow, removing(run, 1), shared_lines)).total > plain
        return
    assert mean(admit(slow, removing(run, least), shared_lines)).total <= plain
    assume(least > 1e-3)
    assert mean(admit(slow, removing(run, 0.99 * least), shared_lines)).total > plain


@given(engines)
def test_a_prefill_is_free_as_long_as_the_weights_take(engine: Engine) -> None:
    free = free_prefill_tokens(engine)
    if not engine.accounting.reads_weights_in_prefill:
        assert free == 0
        return
    reading = engine.read_seconds(engine.model.read_bytes(free))
    assert engine.prefill_seconds(0.99 * free) == pytest.approx(
        engine.read_seconds(engine.model.read_bytes(0.99 * free))
    )
    assert engine.prefill_seconds(1.01 * free) > reading


@given(st.floats(1, 1e6))
def test_a_step_reads_the_active_experts_of_one_token_and_in_the_end_all(tokens: float) -> None:
    assert MIXTURE.read_bytes(1) == pytest.approx(2 * MIXTURE.active_parameters)
    assert 2 * MIXTURE.active_parameters <= MIXTURE.read_bytes(tokens) * SLACK <= MIXTURE.weight_bytes * SLACK * SLACK
    assert MIXTURE.read_bytes(1e6) == pytest.approx(MIXTURE.weight_bytes)
    assert LLAMA_3_1_8B.read_bytes(tokens) == LLAMA_3_1_8B.weight_bytes


@given(st.floats(1, 1e4), st.floats(0.01, 1), st.floats(0, 1e6))
def test_a_snapshot_settles_and_arrivals_do_not(turn_tokens: float, removal: float, context: float) -> None:
    steady = snapshot_steady_tokens(turn_tokens, removal)
    assert snapshot_next(steady, turn_tokens, removal) == pytest.approx(steady)
    assert abs(snapshot_next(context, turn_tokens, removal) - steady) <= abs(context - steady) + 1e-6 * steady
    assert arrival_next(context, turn_tokens, removal) >= context


@given(engines, st.integers(1_000, 200_000))
def test_a_summary_out_of_the_cache_is_cheaper_than_afresh(engine: Engine, tokens: int) -> None:
    assert summarise_cached(10)(engine, tokens) < summarise_afresh(10)(engine, tokens)
