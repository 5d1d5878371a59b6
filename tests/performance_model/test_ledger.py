"""The ledger against the paper's printed cells (tests/data/paper_tables.json), and its laws.

Table 15's seconds per event and share of a turn are in test_paper_cells.py. Of table 18's fifteen cells twelve come out
within 1% with the printed T_obs = 9.07e6 tokens, and two within 5%: eta(8) of masking at k = 20 (by 1.4%) and k = 5
(3.1%). Not reproduced: k = 10, a cell near 0, off by 0.0038.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lam_vllm.errors import OptionError
from lam_vllm.performance_model.ledger import Outcome, Workload, break_even, context_gain, eta, worth

TABLES = json.loads((Path(__file__).parents[1] / "data/paper_tables.json").read_text(encoding="utf-8"))
PRINTED = Workload(turn_tokens=637, observation_tokens=9.07e6)
# The share with which all cells come out; it means T_obs = 9.02e6, which the 598 scored runs may have had.
FITTED = Workload(turn_tokens=637, observation_tokens=637 / 7.0625e-5)
LOST_LINES = {
    "ours t=0.95": 1,
    "ours t=0.90": 81,
    "masking k=20": 438,
    "masking k=10": 1208,
    "masking k=5": 1686,
}
NEAR = {("masking k=20", "8"), ("masking k=5", "8")}
"""Within 5%, not within 1%."""
NOT_REPRODUCED = ("masking k=10", "8")
OUTCOMES = {row["method"]: Outcome(row["rho"], LOST_LINES[row["method"]]) for row in TABLES["table18_eta"]}
CELLS = [(row["method"], kappa, value) for row in TABLES["table18_eta"] for kappa, value in row["eta"].items()]
BREAK_EVENS = [(row["method"], row["break_even"]) for row in TABLES["table18_eta"] if row["break_even"]]

outcomes = st.builds(Outcome, st.floats(-0.5, 0.99), st.integers(0, 5000), st.just(0.0) | st.floats(0, 1e6))
workloads = st.builds(Workload, st.floats(1, 1e4), st.floats(1e4, 1e8))


@pytest.mark.parametrize("row", TABLES["table15"], ids=lambda row: row["method"])
def test_context_gains_of_table_15(row: dict[str, float]) -> None:
    if "removal_pct" in row:
        gain = context_gain(row["removal_pct"] / 100)
    else:  # what the near layer adds: the last row is the quotient of the net row and the one of L0
        gain = context_gain(0.2250) / context_gain(0.1804)
    printed = row["context_gain"]
    assert round(gain, len(str(printed).partition(".")[2])) == printed


@pytest.mark.parametrize(("method", "kappa", "printed"), CELLS)
def test_eta_of_table_18(method: str, kappa: str, printed: float) -> None:
    with_printed_tokens = eta(OUTCOMES[method], float(kappa), PRINTED)
    close = with_printed_tokens == pytest.approx(printed, rel=0.01)
    assert close == ((method, kappa) not in NEAR | {NOT_REPRODUCED})
    if (method, kappa) == NOT_REPRODUCED:
        assert abs(with_printed_tokens - printed) == pytest.approx(0.0038, abs=0.00005)
    else:
        assert with_printed_tokens == pytest.approx(printed, rel=0.05)
    assert eta(OUTCOMES[method], float(kappa), FITTED) == pytest.approx(printed, abs=0.0001)


@pytest.mark.parametrize(("method", "printed"), BREAK_EVENS)
def test_break_evens_of_table_18(method: str, printed: float) -> None:
    assert break_even(OUTCOMES["ours t=0.95"], OUTCOMES[method], PRINTED) == pytest.approx(printed, rel=0.01)


def test_a_ledger_by_hand() -> None:
    workload = Workload(turn_tokens=100, observation_tokens=10_000)
    careful, greedy = Outcome(0.2, 0), Outcome(0.5, 10)
    assert [eta(greedy, kappa, workload) for kappa in (0, 3, 8)] == pytest.approx([0.5, 0.2, -0.3])
    assert break_even(careful, greedy, workload) == pytest.approx(3)
    assert context_gain(0.5) == 2


def test_a_prefix_that_is_prefilled_again_is_an_entry_of_its_own() -> None:
    workload = Workload(turn_tokens=100, observation_tokens=10_000)
    found = worth(Outcome(0.5, 10, reprefilled_tokens=2_000), 3, workload)
    assert (found.removal, found.repair, found.reprefill) == pytest.approx((0.5, 0.3, 0.2))
    assert found.total == pytest.approx(0.0)
    careful, breaking = Outcome(0.2, 0), Outcome(0.5, 10, reprefilled_tokens=2_000)
    assert break_even(careful, breaking, workload) == pytest.approx(1), (
        "0.3 are left of its lead without the break's 0.2"
    )


@settings(deadline=None)
@given(outcomes, st.floats(0, 100), workloads)
def test_entries_are_the_whole_ledger(outcome: Outcome, kappa: float, workload: Workload) -> None:
    found = worth(outcome, kappa, workload)
    assert found.total == found.removal - found.repair - found.reprefill == eta(outcome, kappa, workload)
    assert found.removal == outcome.removal and found.repair >= 0 <= found.reprefill


def test_one_that_removes_less_and_loses_more_is_never_ahead() -> None:
    workload = Workload(turn_tokens=100, observation_tokens=10_000)
    assert break_even(Outcome(0.3, 1), Outcome(0.2, 5), workload) is None
    assert break_even(Outcome(0.3, 5), Outcome(0.2, 5), workload) is None


@settings(deadline=None)
@given(outcomes, outcomes, workloads)
def test_at_the_break_even_both_are_worth_the_same(ours: Outcome, other: Outcome, workload: Workload) -> None:
    kappa = break_even(ours, other, workload)
    assume(kappa is not None)
    assert kappa is not None
    assert break_even(other, ours, workload) == pytest.approx(kappa)
    assert eta(ours, kappa, workload) == pytest.approx(eta(other, kappa, workload), rel=1e-6, abs=1e-6)


@settings(deadline=None)
@given(outcomes, workloads, st.lists(st.floats(0, 100), min_size=2, max_size=5))
def test_a_dearer_repair_never_makes_a_method_worth_more(
    outcome: Outcome, workload: Workload, kappas: list[float]
) -> None:
    assert all(earlier >= later for earlier, later in pairwise(eta(outcome, k, workload) for k in sorted(kappas)))
    assert eta(outcome, 0, workload) == outcome.removal - outcome.reprefilled_tokens / workload.observation_tokens


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: context_gain(1.0), "removal"),
        (lambda: Outcome(1.0, 0), "removal"),
        (lambda: Outcome(float("nan"), 0), "removal"),
        (lambda: Outcome(float("-inf"), 0), "removal"),
        (lambda: Outcome(0.5, -1), "lost_lines"),
        (lambda: Outcome(0.5, 0, -1), "reprefilled_tokens"),
        (lambda: Workload(0, 1), "turn_tokens"),
        (lambda: Workload(1, -1), "observation_tokens"),
        (lambda: Workload(1, float("inf")), "observation_tokens"),
        (lambda: eta(Outcome(0.5, 1), -1, PRINTED), "kappa"),
    ],
)
def test_a_figure_that_cannot_be_is_refused_by_name(make: object, field: str) -> None:
    with pytest.raises(OptionError, match=f"^{field}: "):
        make()  # type: ignore[operator]
