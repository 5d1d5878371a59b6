"""Group A, F15: a prefix that breaks has a price, neither none nor ruin."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lam_vllm.evaluation.baselines.profiles import ProfileMethod
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.turns import turns_of
from lam_vllm.performance_model.compaction import shared_lines
from lam_vllm.performance_model.engine import Engine
from lam_vllm.performance_model.invalidation import with_breaks
from lam_vllm.performance_model.ledger import Outcome, Workload, worth
from lam_vllm.performance_model.model import LLAMA_3_1_8B
from lam_vllm.performance_model.presets import H100
from lam_vllm.performance_model.schedules import admit, no_compaction
from lam_vllm.performance_model.turn import total
from lam_vllm.performance_model.workload import Turn

ENGINE = Engine(H100, LLAMA_3_1_8B)
Turns = tuple[Turn, ...]


@pytest.fixture(scope="module")
def runs(six_runs: list[Run], count_tokens: Callable[[str], int]) -> list[Turns]:
    """Recorded runs with what `exact` takes out of each turn, those in which it finds something."""
    method = ProfileMethod("exact", count_tokens)
    found = [turns_of(run, method, count_tokens) for run in six_runs]
    return [run for run in found if any(turn.removed_tokens for turn in run)]


def seconds(run: Turns, *broken: int) -> float:
    """Of the whole run, the cached prefix being lost before these turns."""
    return total(with_breaks(ENGINE, run, shared_lines, dict.fromkeys(broken, 0.0))).total


def test_f15_a_break_costs_a_prefill_of_what_was_cached_and_nothing_afterwards(runs: list[Turns]) -> None:
    assert len(runs) > 3
    for run in runs:
        whole = total(admit(ENGINE, run, shared_lines))
        for turn in range(1, len(run)):
            cached = sum(each.growth_tokens for each in run[:turn])
            once = seconds(run, turn) - whole.total
            assert 0 < once < 2 * (ENGINE.prefill_seconds(cached) + ENGINE.attention_seconds(cached**2 / 2))
        assert seconds(run, 1, len(run) - 1) > seconds(run, len(run) - 1)


def test_f15_a_rare_break_is_a_small_part_of_a_run_and_one_each_turn_costs_more_than_removal_saves(
    runs: list[Turns],
) -> None:
    for run in runs:
        admitted, plain = seconds(run), total(no_compaction(ENGINE, run)).total
        assert seconds(run, len(run) // 2) < 1.1 * admitted, "once, in the middle"
        assert seconds(run, *range(1, len(run))) > plain > admitted


def test_f15_the_ledger_charges_what_is_prefilled_again(runs: list[Turns]) -> None:
    for run in runs:
        observed = sum(turn.observed_tokens for turn in run)
        growth = sum(turn.growth_tokens for turn in run) / len(run)
        removed = sum(turn.removed_tokens for turn in run)
        workload = Workload(growth, observed)
        lost = sum(turn.growth_tokens for turn in run[: len(run) // 2])
        kept, broken = (worth(Outcome(removed / observed, 0, again), 1.0, workload) for again in (0.0, lost))
        assert kept.total == pytest.approx(removed / observed) and kept.reprefill == 0.0
        assert observed * (kept.total - broken.total) == pytest.approx(lost)
        every = sum(sum(turn.growth_tokens for turn in run[:place]) for place in range(len(run)))
        assert worth(Outcome(removed / observed, 0, every), 1.0, workload).total < 0 < kept.total
