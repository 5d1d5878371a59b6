"""Tables of a sweep, on rows small enough to check by eye."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from lam_vllm.evaluation.measures.rates import rates
from lam_vllm.evaluation.study.sweep import size_table, sweep_tables
from lam_vllm.evaluation.tables import Figures
from lam_vllm.performance_model.ledger import Workload
from tests.evaluation.made_rows import row

ROWS = [
    row(run="a", method="paper", setting="t=0.95", emitted_tokens=80),
    row(run="b", method="paper", setting="t=0.95", emitted_tokens=80),
    row(run="a", method="masking", setting="k=3", emitted_tokens=20, gold_kept=2),
    row(run="b", method="masking", setting="k=3", emitted_tokens=20),
    row(run="a", method="masking", setting="k=50"),
    row(run="b", method="masking", setting="k=50"),
    row(run="a", method="summaries", setting="rho=0.1", emitted_tokens=10, gold_kept=None, readable_lines=None),
    row(run="b", method="summaries", setting="rho=0.1", emitted_tokens=10, gold_kept=None, readable_lines=None),
]
WORKLOAD = Workload(turn_tokens=10, observation_tokens=200)


def table(name: str) -> Figures:
    return next(found for found in sweep_tables("agent", ROWS, WORKLOAD) if found.name == name)


def test_the_binding_setting_of_each_floor_is_the_one_that_removes_most() -> None:
    paper, masking, summaries = table("ecr").json()
    assert (paper["ecr_1.000"], paper["at_1.000"]) == (pytest.approx(0.2), "t=0.95")
    assert (masking["ecr_1.000"], masking["at_1.000"]) == (0.0, "k=50")
    assert summaries["ecr_0.950"] == "not measurable: writes new text" and summaries["at_0.950"] is None


def test_removal_is_worth_less_the_more_repair_turns_a_lost_line_costs() -> None:
    lines = {line["label"]: line for line in table("settings").json()}
    masking = lines["masking k=3"]
    assert masking["eta_1"] == pytest.approx(0.8 - 1 * 2 * 10 / 200)
    assert masking["eta_8"] == pytest.approx(0.8 - 8 * 2 * 10 / 200)
    assert masking["break_even"] == pytest.approx((0.8 - 0.2) / (2 * 10 / 200))
    assert masking["rsc"] == 0.5 and masking["bfr_8000"] == 1.0
    assert lines["summaries rho=0.1"]["eta_1"] is None


def test_floors_count_the_settings_that_keep_them() -> None:
    at_one, *_ = table("floors").json()
    assert (at_one["floor"], at_one["admissible"], at_one["losing_runs"]) == (1.0, 2, 0.0)


def test_without_turns_nothing_is_said_of_their_worth() -> None:
    *_, settings = sweep_tables("agent", ROWS, None)
    assert all(line["eta_1"] is None and line["break_even"] is None for line in settings.json())


def test_break_even_names_whom_it_is_counted_against_and_is_none_without_them() -> None:
    assert table("settings").note.endswith("Break-even against paper t=0.95.")
    *_, settings = sweep_tables("agent", [each for each in ROWS if each.method != "paper"], WORKLOAD)
    assert "Break-even" not in settings.note
    assert [line["break_even"] for line in settings.json()] == [None, None, None]


def test_sizes_fall_between_powers_of_two() -> None:
    rows = [row(run="a", observation_tokens=100), row(run="b", observation_tokens=200, emitted_tokens=100)]
    (line,) = size_table(rows).json()
    assert (line["from_64"], line["runs_from_64"], line["from_128"], line["runs_from_128"]) == (0.0, 1, 0.5, 1)


def test_seeds_are_one_line_and_counted_once() -> None:
    rows = [row(method="semdedup", seed=seed, emitted_tokens=tokens) for seed, tokens in ((0, 80), (1, 60))]
    (line,) = rates(rows)[0].json()
    assert (line["seeds"], line["runs"], line["observation_tokens"], line["gold_witnessed"]) == (2, 1, 100, 4)
    assert line["removed_net"] == pytest.approx(0.3)


def test_a_terminal_never_shows_0_for_what_cannot_be_measured() -> None:
    printed = StringIO()
    for found in rates(ROWS):
        Console(file=printed, width=200).print(found.terminal())
    (line,) = [line for line in printed.getvalue().splitlines() if "summaries" in line]
    assert line.split() == ["summaries", "rho=0.1", "90.00%", "n/m", "100.00%", "n/m", "-", "10.00"]
