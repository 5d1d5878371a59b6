"""Schedules by hand, on an engine whose every constant is a round number, and against the formulas written out."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import pytest

from lam_vllm.performance_model.accounting import EXACT, PAPER
from lam_vllm.performance_model.break_even import break_even
from lam_vllm.performance_model.capacity import contexts
from lam_vllm.performance_model.compaction import (
    near_duplicates,
    near_duplicates_then_lines,
    nothing,
    repeated_lines,
    shared_lines,
)
from lam_vllm.performance_model.device import Constant
from lam_vllm.performance_model.engine import Engine
from lam_vllm.performance_model.forecast import comparable, forecast, forecast_nothing, full_turn, mean_growth_tokens
from lam_vllm.performance_model.invalidation import break_seconds, with_breaks
from lam_vllm.performance_model.model import Model
from lam_vllm.performance_model.paper import METHODS, TURN_TOKENS, Method, paper_engine, paper_run
from lam_vllm.performance_model.presets import GB10
from lam_vllm.performance_model.schedules import (
    admit,
    in_place,
    no_compaction,
    suffix,
    turns_before_wall,
    wall_budget,
    wall_every_turn,
)
from lam_vllm.performance_model.turn import mean, rebuild_seconds, turn_cost
from lam_vllm.performance_model.workload import Turn, removing, steady_run

SMALL = Model("small", 50, 50, layers=1, attention_width=1, kv_bytes_per_token=10, window_tokens=1_000)
"""100 FLOP and 4 more for each pair of a token; weights of 100 bytes."""


def constant(value: float, unit: str = "1") -> Constant:
    return Constant(value, unit, "a test", "estimated")


ROUND = replace(
    GB10,
    memory_bandwidth=constant(100, "B/s"),
    matrix_rate=constant(200, "FLOP/s"),
    prefill_efficiency=constant(0.5),
    memory=constant(100_000, "B"),
    exact_rate=constant(10, "tok/s"),
)
"""A step reads the weights in 1 s and a token's cache in 0.1 s; a token is prefilled in 1 s, a pair takes 0.04 s."""
ENGINE = Engine(ROUND, SMALL)
RUN = (Turn(10, 2), Turn(8, 2, removed_tokens=4, stale_tokens=3), Turn(5, 2))


def test_a_turn_by_hand() -> None:
    cost = turn_cost(ENGINE, prefilled_tokens=10, decoded_tokens=2, context_tokens=32)
    assert (cost.weights, cost.prefill) == (2, 10)
    assert cost.attention == pytest.approx(0.04 * (10 * 20 + 10 * 10 / 2)), "20 were cached, half of 10 x 10 are later"
    assert cost.kv_read == pytest.approx(0.1 * 2 * (30 + 1)), "two steps, at 30.5 and 31.5 tokens"
    paper = turn_cost(replace(ENGINE, accounting=PAPER), 10, 2, 32)
    assert paper.attention == pytest.approx(0.04 * 10 * 32 / 2) and paper.kv_read == pytest.approx(0.1 * 2 * 32)


def test_a_short_prefill_takes_as_long_as_reading_the_weights() -> None:
    assert turn_cost(ENGINE, 0.25, 1, 30).prefill == 1
    assert turn_cost(replace(ENGINE, accounting=PAPER), 0.25, 1, 30).prefill == 0.25


def test_an_engine_prefills_at_least_one_token() -> None:
    """All of 8 goes, or nothing arrives: of the cache the last token is prefilled again, and the context is as long."""
    run = (Turn(10, 2), Turn(8, 2, removed_tokens=8, stale_tokens=2), Turn(0, 2))
    costs = admit(ENGINE, run, nothing)
    assert [cost.prefill for cost in costs] == [10, 1, 1]
    assert contexts(ENGINE, run, admitted=True) == [12, 14, 16]
    assert costs[1].attention == pytest.approx(0.04 * (14 - 2 - 0.5))
    (alone,) = admit(ENGINE, (Turn(0, 0),), nothing)
    assert alone.prefill == 1 and alone.total == pytest.approx(1.02) and 0 < alone.phi < 1
    (paper,) = admit(replace(ENGINE, accounting=PAPER), (Turn(0, 0),), nothing)
    assert paper.total == paper.phi == 0 and paper.ceiling == 1


def test_schedules_by_hand() -> None:
    """Contexts before each turn: 0, 12, 18; of turn 2 four tokens go, and three behind the first of them stay."""
    costs = {schedule: schedule(ENGINE, RUN, nothing) for schedule in (admit, suffix, in_place, wall_every_turn)}
    assert [cost.prefill for cost in costs[admit]] == [10, 4, 5]
    assert all([cost.prefill for cost in costs[late]] == [10, 8, 5] for late in (suffix, in_place, wall_every_turn))
    assert [cost.reprefill for cost in costs[admit]] == [0, 0, 0]
    assert [cost.reprefill for cost in costs[suffix]] == [0, 0, pytest.approx(3 + 0.04 * (3 * 15 + 4.5))]
    whole = [0, pytest.approx(12 + 0.04 * 72), pytest.approx(18 + 0.04 * 162)]
    assert [cost.reprefill for cost in costs[in_place]] == whole
    assert [cost.reprefill for cost in costs[wall_every_turn]] == whole
    attended = [cost.attention / 0.04 for cost in costs[suffix]]
    assert attended == [pytest.approx(pairs) for pairs in (50, 8 * 12 + 32, 5 * 18 + 12.5)]


def test_the_first_token_waits_for_all_that_is_prefilled_and_for_the_compactor() -> None:
    costs = suffix(ENGINE, RUN, shared_lines)
    last = costs[-1]
    assert last.reprefill > 0 < last.compaction
    assert last.ttft == last.compaction + last.reprefill + last.prefill + last.attention
    assert last.total == pytest.approx(last.ttft + last.weights + last.kv_read)


def test_who_looks_at_what() -> None:
    tested = {
        schedule: [cost.compaction for cost in schedule(ENGINE, RUN, shared_lines)] for schedule in (admit, suffix)
    }
    assert tested[admit] == tested[suffix] == [1, 0.8, 0.5]
    assert [cost.compaction for cost in wall_every_turn(ENGINE, RUN, shared_lines)] == [0, 1.2, 1.8]
    told = (Turn(10, 2, other_tokens=10), *RUN[1:])
    assert [cost.compaction for cost in admit(ENGINE, told, shared_lines)] == [0, 0.8, 0.5]


def test_near_duplicates_and_then_lines_are_both() -> None:
    """Slow hashing, so that the lines are no rounding of the encoder's time."""
    slow = replace(ENGINE, device=replace(ROUND, hash_rate=constant(368, "B/s")))
    assert repeated_lines(slow, 100) == pytest.approx(1)
    assert near_duplicates_then_lines(slow, 100) == pytest.approx(near_duplicates(slow, 100) + 1)


def test_a_budget_by_hand() -> None:
    """12 and 22 tokens fit into 25; for the 7 of turn 3 the four go, and the three behind the first are stale."""
    costs = wall_budget(ENGINE, RUN, shared_lines, 25)
    assert [cost.compaction for cost in costs] == [0, 0, 2.2]
    assert [cost.reprefill for cost in costs] == [0, 0, pytest.approx(3 + 0.04 * (3 * 15 + 4.5))]
    assert turns_before_wall(RUN, 25) == 3 and turns_before_wall(RUN, 24) == 2
    masked = wall_budget(ENGINE, RUN, shared_lines, 25, removal=0.5)
    assert masked[2].reprefill == pytest.approx(11 + 0.04 * 60.5), "half of 22 stay, and all of it is prefilled again"


def test_a_broken_prefix_by_hand() -> None:
    """Before turn 3 the cache of 18 tokens keeps 12; or, before turn 2, nothing of 12."""
    whole = admit(ENGINE, RUN, shared_lines)
    assert with_breaks(ENGINE, RUN, shared_lines, {}) == whole
    broken = with_breaks(ENGINE, RUN, shared_lines, {2: 12})
    assert broken[:2] == whole[:2], "it is in the cache again afterwards"
    assert replace(broken[2], reprefill=0.0) == whole[2]
    assert broken[2].reprefill == pytest.approx(6 + 0.04 * (6 * 18 - 18))
    alone = break_seconds(ENGINE, RUN, nothing)
    assert alone == [pytest.approx(12 + 0.04 * 72), pytest.approx(18 + 0.04 * 162)]


def test_every_event_removes_what_came_since_the_last() -> None:
    """Ten arrive in a turn and five of them go: 30 fit; the fourth turn finds 30 and leaves 25, the fifth 20 and 30."""
    turn = Turn(10, 0, removed_tokens=5, stale_tokens=5)
    assert turns_before_wall([turn] * 9, 30) == 5
    costs = wall_budget(ENGINE, [turn] * 5, shared_lines, 30)
    assert [cost.compaction for cost in costs] == [0, 0, 0, 3, 2.5]
    assert costs[3].reprefill == pytest.approx(15 + 0.04 * 15 * 7.5), "all that is left"
    assert costs[4].reprefill == pytest.approx(5 + 0.04 * (5 * 20 - 12.5)), "of 20 the last five lie behind a change"


@pytest.mark.parametrize("method", METHODS[:4], ids=lambda method: method.name)
@pytest.mark.parametrize("budget", [32_000, 128_000])
def test_a_budget_is_the_sawtooth_that_the_formula_averages(method: Method, budget: int) -> None:
    """One event in rB/Delta turns, contexts evenly between (1-r)B and B, from the first event on."""
    engine, removal = paper_engine(), method.removal
    costs = wall_budget(engine, paper_run(), method.compaction, budget, removal)
    events = [number for number, cost in enumerate(costs) if cost.reprefill]
    whole_teeth = mean(costs[events[0] : events[-1]]).total
    turns_between = removal * budget / TURN_TOKENS.value
    event = method.compaction(engine, budget) + rebuild_seconds(engine, (1 - removal) * budget)
    plain = turn_cost(engine, 598, 39, (1 - removal / 2) * budget).total
    assert whole_teeth == pytest.approx(plain + event / turns_between, rel=0.03)


def test_under_a_budget_a_method_that_keeps_less_costs_less() -> None:
    seconds = [
        mean(wall_budget(paper_engine(), paper_run(), nothing, 32_000, removal)).total
        for removal in (0.2, 0.4, 0.6, 0.8)
    ]
    assert seconds == sorted(seconds, reverse=True)


def test_a_forecast_compares_the_same_turns() -> None:
    """Windows of 40 tokens: without compaction three turns fit, with it all four of the first run."""
    engine = Engine(ROUND, replace(SMALL, window_tokens=40))
    runs = ((*RUN, Turn(12, 2)), (Turn(39, 2), Turn(1, 1)))
    assert [len(run) for run in comparable(engine, runs)] == [3, 0]
    plain, ours = forecast_nothing(engine, runs), forecast(engine, runs, "admit", "exact")
    assert (plain.policy, plain.answered, ours.policy, ours.answered) == ("no compaction", 3, "admit exact", 4)
    assert ours.costs == (admit(engine, RUN, nothing), ())
    assert ours.turn.total == pytest.approx(fmean(cost.total for cost in ours.costs[0]))
    assert ours.ttft == [cost.ttft for cost in ours.costs[0]]
    assert sum(map(len, plain.costs)) == len(plain.ttft) == 3


def test_what_arrives_whole_needs_more_room() -> None:
    engine = Engine(ROUND, replace(SMALL, window_tokens=20))
    runs = (RUN[:2],)
    answered = {name: forecast(engine, runs, name, "exact").answered for name in ("admit", "suffix", "in_place")}
    assert answered == {"admit": 2, "suffix": 1, "in_place": 1}, "12 + 6 fit into 20, 12 + 10 do not"


def test_nothing_is_removed_from_what_a_run_starts_with() -> None:
    first, second = removing(steady_run(2, 10, 2, start_tokens=50), 0.5)
    assert first == Turn(58, 2, removed_tokens=4, stale_tokens=56, other_tokens=50)
    assert second == Turn(8, 2, removed_tokens=4, stale_tokens=6)


def test_first_tokens_are_averaged_over_the_runs_that_have_the_turn() -> None:
    runs = (RUN, (Turn(20, 2),))
    first = fmean(no_compaction(ENGINE, run)[0].ttft for run in runs)
    assert forecast_nothing(ENGINE, runs).ttft == [
        pytest.approx(first),
        *(cost.ttft for cost in no_compaction(ENGINE, RUN)[1:]),
    ]


def test_when_a_context_is_full() -> None:
    run = steady_run(3, 10, 2, start_tokens=50)
    assert mean_growth_tokens([run]) == 10
    assert full_turn([run], 100) == 5, "60, 70, 80, 90, 100"
    assert full_turn([(Turn(5, 0),)], 100) is None


def test_break_even_by_hand() -> None:
    """Two equal turns, in the paper's accounting, where removal shortens the context and nothing else."""
    engine = replace(ENGINE, accounting=PAPER)
    run = (Turn(10, 0, removed_tokens=5, stale_tokens=5), Turn(10, 0, removed_tokens=5, stale_tokens=5))
    found = break_even(engine, [run], shared_lines)
    saved = 0.04 * 10 * (10 + 20 - 5 - 10) / 2 / 2
    assert found.tokens_per_second == pytest.approx(10 / saved)
    assert found.removal == pytest.approx(1 / (2 * saved), abs=1e-5), "a turn's test takes a second, 5 of 10 save 1.5"
    assert found.free_prefill_tokens == 0
    assert found.broken_prefix_seconds == pytest.approx(5 + 0.04 * 5 * 5 / 2), "before the second turn five are cached"
    assert found.turns_a_break == pytest.approx(found.broken_prefix_seconds / (saved - 1))
    assert break_even(ENGINE, [run], shared_lines).free_prefill_tokens == pytest.approx(1, abs=1e-5)
    assert EXACT is ENGINE.accounting


def test_nothing_saved_leaves_no_compactor_fast_enough() -> None:
    found = break_even(ENGINE, [(Turn(10, 2),)], shared_lines)
    assert found.tokens_per_second is None is found.turns_a_break
    assert found.broken_prefix_seconds == 0, "the first turn has no prefix"
