"""bench/schedules.py: prompts of run, turn and schedule; what a cache makes of them; predictions and gains."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lam_vllm.evaluation.corpus import Run
from lam_vllm.performance_model.compaction import nothing
from lam_vllm.performance_model.schedules import no_compaction
from lam_vllm.performance_model.served import Served, ttft_seconds
from lam_vllm.performance_model.workload import Turn
from lam_vllm.types import Message

sys.path.append(str(Path(__file__).parents[2] / "bench"))  # the benchmarks import one another by name

import schedules_model
from schedules_capacity import blocks_of, fitting, most_shortened
from schedules_figures import Measurement, figures_of, turn_rows
from schedules_live import Sent, in_turn, sums
from schedules_model import Setting, costs, over_admit, predicted_seconds, served_engine
from schedules_prompts import (
    SCHEDULES,
    Prefill,
    Stretch,
    least_budget,
    model_turns,
    prefills,
    prompts_of,
    shared_tokens,
    stretches,
)
from schedules_tables import tables

ENGINE = Served(0.02, 1.5e-3, 2e-7, 0.03, 1e-6, "made up")
A_SECOND_A_TOKEN = Served(0.0, 1.0, 0.0, 1e-9, 0.0, "so that seconds are tokens")


def tokens(messages: Sequence[Message]) -> list[int]:
    """Each character is a token."""
    return [ord(character) for message in messages for character in message["content"]]


def said(*contents: str) -> tuple[Message, ...]:
    """A task, then calls and their results in turn."""
    roles = ["user", *("assistant", "tool") * len(contents)]
    return tuple({"role": role, "content": content} for role, content in zip(roles, contents, strict=False))


STRETCH = Stretch(
    "a run",
    "somewhere",
    ends=(1, 3, 5, 7),
    whole=said("task", "A", "first", "B", "second", "C", "third"),
    shortened=said("task", "A", "first", "B", "s!", "C", "third"),
)


def texts(schedule: str) -> list[str]:
    prompts = prompts_of(STRETCH, schedule, tokens)
    return ["".join(message["content"] for message in prompt) for prompt in prompts]


def test_every_schedule_sends_its_own_prompts() -> None:
    assert texts("none") == ["task", "taskAfirst", "taskAfirstBsecond", "taskAfirstBsecondCthird"]
    assert texts("admit") == ["task", "taskAfirst", "taskAfirstBs!", "taskAfirstBs!Cthird"]
    assert texts("in_place") == ["task", "taskAfirst", "taskAfirstBsecond", "taskAfirstBs!Cthird"]
    assert texts("rebuild_all") == texts("in_place")


def test_the_wall_shortens_nothing_before_a_prompt_exceeds_the_least_budget() -> None:
    assert least_budget(STRETCH, tokens) == len("taskAfirstBs!Cthird")
    assert texts("wall") == ["task", "taskAfirst", "taskAfirstBsecond", "taskAfirstBs!Cthird"]


def test_a_cache_gives_whole_blocks_and_never_the_last_token() -> None:
    sent = [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4], [1, 2, 3, 9]]
    assert prefills(sent, 2) == [Prefill(5, 0), Prefill(4, 4), Prefill(2, 2), Prefill(2, 2)]
    assert prefills(sent, 4) == [Prefill(5, 0), Prefill(4, 4), Prefill(4, 0), Prefill(4, 0)]
    assert prefills(sent, 1, fresh=True) == [Prefill(5, 0), Prefill(8, 0), Prefill(4, 0), Prefill(4, 0)]
    assert shared_tokens([1, 2, 3], [1, 2, 4, 5]) == 2


def test_a_stretch_is_turns_of_the_model() -> None:
    assert model_turns(STRETCH, tokens) == (
        Turn(4, 0),
        Turn(6, 0),
        Turn(7, 0, removed_tokens=4, stale_tokens=1),  # of "second" stays "s", and "!" is behind the first change
        Turn(6, 0),
    )


@st.composite
def made_stretches(draw: st.DrawFn) -> Stretch:
    """Results of tokens that occur once; of some all from a place on is gone but for a token that stands for it."""
    fresh = map(chr, range(0x4E00, 0x9FFF))
    whole, shortened = ["".join(next(fresh) for _ in range(5))], []
    shortened.append(whole[0])
    for length in draw(st.lists(st.integers(2, 12), min_size=1, max_size=6)):
        call, result = next(fresh), "".join(next(fresh) for _ in range(length))
        kept = draw(st.integers(0, length - 2)) if draw(st.booleans()) else length
        whole += [call, result]
        shortened += [call, result if kept == length else result[:kept] + next(fresh)]
    return Stretch("made", "made", tuple(range(1, len(whole) + 1, 2)), said(*whole), said(*shortened))


@given(made_stretches())
def test_the_models_schedules_prefill_what_a_cache_of_single_tokens_leaves(stretch: Stretch) -> None:
    setting = Setting(served_engine(A_SECOND_A_TOKEN, 10_000), [model_turns(stretch, tokens)], nothing)
    for schedule, predicted in costs(setting).items():
        sent = [tokens(prompt) for prompt in prompts_of(stretch, schedule, tokens)]
        found = prefills(sent, 1, fresh=schedule == "rebuild_all")
        assert [cost.ttft for cost in predicted] == pytest.approx([each.uncached_tokens for each in found], rel=1e-3)


@given(made_stretches())
def test_admission_prefills_least_and_both_budgets_agree(stretch: Stretch) -> None:
    totals = {
        schedule: sum(
            each.uncached_tokens
            for each in prefills(
                [tokens(prompt) for prompt in prompts_of(stretch, schedule, tokens)], 1, fresh=schedule == "rebuild_all"
            )
        )
        for schedule in SCHEDULES
    }
    assert totals["admit"] <= totals["in_place"] <= totals["rebuild_all"]
    assert totals["admit"] <= min(totals["none"], totals["wall"])
    assert schedules_model.least_budget(model_turns(stretch, tokens)) == least_budget(stretch, tokens)


def test_a_prediction_is_the_engines_time_for_what_is_not_cached() -> None:
    first, second = predicted_seconds(ENGINE, [Prefill(100, 0), Prefill(50, 96)])
    assert first == pytest.approx(0.02 + 0.15 + 2e-7 * 100 * 50)
    assert second == pytest.approx(0.02 + 0.075 + 2e-7 * 50 * (96 + 25))


@given(st.integers(1, 4_000))
def test_the_models_engine_takes_the_time_that_was_fitted(arriving: int) -> None:
    (cost,) = no_compaction(served_engine(ENGINE, 10_000), [Turn(arriving, 0)])
    least = ENGINE.decode_fixed_seconds  # a prefill lasts at least as long as reading the weights
    linear = max(ENGINE.seconds_per_token * arriving, least)
    whole = ttft_seconds(ENGINE, arriving, 0) - ENGINE.fixed_seconds
    assert cost.ttft == pytest.approx(whole + linear - ENGINE.seconds_per_token * arriving)


def test_gains_are_ratios_of_means() -> None:
    assert over_admit({"admit": [1.0, 3.0], "wall": [5.0, 7.0]}) == {"admit": 1.0, "wall": 3.0}


def run(name: str, *results: str) -> Run:
    contents = ["task", *(each for number, result in enumerate(results) for each in (f"call {number}", result)), "end"]
    roles = ["user", *("assistant", "tool") * len(results), "assistant"]
    messages = tuple({"role": role, "content": text} for role, text in zip(roles, contents, strict=True))
    return Run(name, name.partition("/")[0], messages)


def test_runs_are_chosen_by_source_and_length_where_something_goes_before_the_last_turn() -> None:
    page = "\n".join(f"line number {number} of a page" for number in range(20))
    more = page + "\nand a line"
    runs = [
        run("a/long", more, more, "x"),
        run("a/short", page, page, "x"),
        run("a/longer", more + "!", more + "!", "x"),
        run("a/nothing", page, "y", "x"),
        run("a/at the end", "x", page, page),
        run("a/few turns", page, page),
        run("b/one", more, more, "x"),
        run("b/too long", page * 9, page * 9, "x"),
    ]
    found = stretches(runs, 4, 2_000, 2, 3, tokens, lambda text: len(text.split()))
    assert [stretch.run_id for stretch in found] == ["a/short", "a/long", "b/one"]
    assert found[0].ends == (1, 3, 5, 7)
    assert len(found[0].shortened[4]["content"]) < len(page) == len(found[0].whole[4]["content"])
    one = stretches(runs, 4, 2_000, 1, 3, tokens, lambda text: len(text.split()))
    assert [stretch.run_id for stretch in one] == ["a/short", "b/one"]


def test_every_schedule_comes_first_once() -> None:
    assert [in_turn(place)[0] for place in range(5)] == list(SCHEDULES)
    assert sorted(in_turn(3)) == sorted(SCHEDULES)


METRICS = """\
# HELP vllm:prefix_cache_hits_total Prefix cache hits, in terms of number of cached tokens.
vllm:prefix_cache_hits_total{engine="0",model_name="smollm2"} 64.0
vllm:prefix_cache_hits_total{engine="1",model_name="smollm2"} 32.0
vllm:prompt_tokens_by_source_total{engine="0",model_name="smollm2",source="local_compute"} 1.5e+03
vllm:prompt_tokens_by_source_total{engine="0",model_name="smollm2",source="local_cache_hit"} 96.0
lam:prompt_tokens_prefilled_total 3.0
"""


def test_counters_are_summed_over_engines_and_kept_apart_by_source() -> None:
    assert sums(METRICS) == {
        "prefix_cache_hits_total": 96,
        "prompt_tokens_by_source_total local_compute": 1_500,
        "prompt_tokens_by_source_total local_cache_hit": 96,
    }


def test_runs_fit_by_whole_blocks() -> None:
    assert blocks_of(prompt_tokens=64, block_tokens=32) == 3  # the answer has 32
    assert blocks_of(prompt_tokens=65, block_tokens=32) == 4
    assert fitting(13, [64], 32) == 4
    assert fitting(13, [64, 65], 32) == 3  # 3.5 blocks on average
    assert most_shortened([STRETCH, STRETCH], [100, 10], [80, 7]) == 1


def sent(prompt: Sequence[int], found: Prefill) -> Sent:
    """What an engine would show whose every prefill takes half as long again as predicted."""
    seconds = 1.5 * ttft_seconds(ENGINE, found.uncached_tokens, found.cached_tokens)
    cached = found.cached_tokens
    return Sent(len(prompt), cached, seconds, found.uncached_tokens, len(prompt), cached, hook_seconds=0.001)


def measurement(*, rebuilt: bool = True) -> Measurement:
    turns = {}
    for schedule in SCHEDULES:
        prompts = [tokens(prompt) for prompt in prompts_of(STRETCH, schedule, tokens)]
        turns[schedule] = list(map(sent, prompts, prefills(prompts, 4, fresh=schedule == "rebuild_all")))
    other = {name: each for name, each in turns.items() if rebuilt or name != "rebuild_all"}
    return Measurement([STRETCH, STRETCH], [turns, other], ENGINE, tokens, block_tokens=4, kv_tokens=1_000)


def test_figures_tell_how_far_the_prediction_is_from_what_was_seen() -> None:
    rows = turn_rows(measurement())
    assert len(rows) == 2 * len(SCHEDULES) * 4
    assert all(row.uncached_tokens == row.predicted_uncached_tokens for row in rows)
    figures = figures_of(measurement())
    assert figures["ttft_error_p50"] == pytest.approx(1 / 3, abs=2e-3)  # times are kept to a tenth of a millisecond
    assert figures["gains"]["measured"]["admit"] == 1
    assert 1 < figures["admit_over_in_place_measured"] < figures["admit_over_rebuild_measured"]
    assert figures["admit_over_in_place_measured"] == pytest.approx(figures["gains"]["predicted"]["in_place"], abs=2e-3)
    assert figures["hook_ms_mean"] == 1


def test_a_schedule_is_compared_over_the_runs_that_were_sent_under_it() -> None:
    some, every = (figures_of(measurement(rebuilt=rebuilt)) for rebuilt in (False, True))
    assert some["schedules"]["rebuild_all"]["turns"] == every["schedules"]["rebuild_all"]["turns"] / 2
    assert some["gains"]["measured"] == every["gains"]["measured"]


def test_the_papers_gain_comes_out_of_its_own_setting() -> None:
    figures = figures_of(measurement())
    assert figures["admit_over_in_place_paper"] == pytest.approx(71.4, abs=0.1)  # table 8
    assert figures["admit_over_in_place_exact"] < 1.2


def test_tables_show_every_schedule_and_turn() -> None:
    tried = {"prompt_tokens": 23, "counted": 2, "asked": 3, "begun": 2, "answering": 2, "running": 2, "waiting": 1}
    held = {
        "kv_blocks": 10,
        "block_tokens": 4,
        "mean_tokens_off": 23.0,
        "mean_tokens_on": 19.0,
        "mean_runs_off": 1,
        "mean_runs_on": 2,
        "tried_run": "a run",
        "tried": {"off": tried, "on": tried},
    }
    printed = tables({**figures_of(measurement()), "capacity": held}).splitlines()
    assert "| a run | 4 | 4 | 23 | 17.4% | 19 |" in printed
    cumulative = 2 * sum(map(len, texts("none")))
    assert any(line.startswith(f"| nothing removed | {cumulative} |") for line in printed)
    assert sum(line.startswith("| 4 |") for line in printed) == 1
