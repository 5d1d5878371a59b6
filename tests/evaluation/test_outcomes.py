"""RSC and BFR on a handful of rows."""

from __future__ import annotations

import pytest

from lam_vllm.evaluation.measures.gold import Unmeasurable
from lam_vllm.evaluation.measures.outcomes import BFR_ASSUMES, BUDGETS_TOKENS, RSC_ASSUMES, bfr, rsc, rsc_drop

from .made_rows import row

FOUR = [
    row("resolved, complete"),
    row("resolved, lost a line", gold_kept=3),
    row("unresolved, complete", resolved=False),
    row("unresolved, lost a line", resolved=False, gold_kept=3),
]
WITHOUT_BOTH = [row("no outcome", resolved=None, gold_kept=0), row("no patch", has_gold=False, gold_witnessed=0)]


def test_rsc_counts_resolved_runs_that_lost_no_line() -> None:
    assert rsc(FOUR).value == 0.25
    assert rsc_drop(FOUR) == 0.25  # from the half that was resolved


def test_rsc_leaves_out_runs_without_a_patch_or_an_outcome() -> None:
    assert rsc([*FOUR, *WITHOUT_BOTH]) == rsc(FOUR)
    assert rsc_drop([*FOUR, *WITHOUT_BOTH]) == rsc_drop(FOUR)


def test_a_run_that_saw_no_gold_line_could_lose_none() -> None:
    assert rsc([row(gold_witnessed=0, gold_kept=0, gold_relaxed=0)]).value == 1.0


def test_rsc_is_not_measurable_without_such_runs_or_from_new_text() -> None:
    assert str(rsc(WITHOUT_BOTH)) == "not measurable: no run has both a gold patch and an outcome"
    rewritten = [row(gold_kept=None, gold_relaxed=None)]
    assert str(rsc(rewritten)) == "not measurable: writes new text"
    assert isinstance(rsc_drop(rewritten), Unmeasurable)


@pytest.mark.parametrize(("budget", "share"), [(8_000, 0.5), (7_999, 0.25), (64_000, 1.0), (0, 0.0)])
def test_bfr_counts_what_is_emitted_against_the_budget(budget: int, share: float) -> None:
    rows = [row(str(tokens), observation_tokens=10**6, emitted_tokens=tokens) for tokens in (1, 8_000, 8_001, 64_000)]
    assert bfr(rows, budget).value == share


def test_bfr_is_known_of_new_text_too() -> None:
    assert bfr([row(gold_kept=None, emitted_tokens=5)], BUDGETS_TOKENS[0]).value == 1.0
    assert str(bfr([], BUDGETS_TOKENS[0])) == "not measurable: there is no run"


def test_what_is_printed_names_every_assumption() -> None:
    for share, assumed in ((rsc(FOUR), RSC_ASSUMES), (bfr(FOUR, 8_000), BFR_ASSUMES)):
        assert str(share).startswith(("25.00% of 4 runs", "100.00% of 4 runs"))
        assert all(assumption in str(share) for assumption in assumed)
