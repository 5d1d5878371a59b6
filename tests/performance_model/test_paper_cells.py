"""The printed cells, and those that the model does not reproduce, with the reason.

Not here for want of data: figure 8's and figure 9's curves, tables 9, 10 and 19, and the 28K tokens of table 27, whose
eviction rule is not known.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lam_vllm.evaluation.study.model_figures import COMPACTIONS
from lam_vllm.performance_model import paper
from lam_vllm.performance_model.accounting import HALF_ATTENTION, ExactAccounting, PaperAccounting
from lam_vllm.performance_model.device import Device
from lam_vllm.performance_model.engine import Engine
from lam_vllm.performance_model.model import LLAMA_3_1_8B
from lam_vllm.performance_model.paper import (
    L0_REMOVAL,
    LAM,
    LAM_REMOVAL,
    METHODS,
    TURN_TOKENS,
    paper_engine,
    paper_run,
)
from lam_vllm.performance_model.presets import A100_40GB, GB10
from lam_vllm.performance_model.schedules import admit, suffix, wall_budget, wall_every_turn
from lam_vllm.performance_model.turn import mean, rebuild_seconds
from tests.performance_model.cells import CLOSE, NEAR, TABLES, Cell, cells, mean_turn, turn_at

CELLS = cells()
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_a_printed_cell(cell: Cell) -> None:
    assert cell.holds(), f"printed {cell.printed}, modelled {cell.modelled}"


def counts_said(text: str) -> list[list[int]]:
    """All cells, fits, arithmetic and predictions, wherever a text tells them."""
    sentence = r"Of (\d+)\s+(?:printed )?cells\b.*?(\d+)\s+are\s+fits,\s+(\d+)\s+arithmetic[^,]*,\s+(\d+)\s+predictions"
    return [list(map(int, found)) for found in re.findall(sentence, text, re.DOTALL)]


def test_the_docs_say_how_many_cells_are_predictions() -> None:
    counts = Counter(cell.how for cell in CELLS)
    right = [len(CELLS), counts["fit"], counts["arithmetic"], counts["prediction"]]
    assert counts_said(paper.__doc__ or "") == [right]
    assert counts_said((ROOT / "README.md").read_text(encoding="utf-8")) == [right]


def test_what_was_fitted_is_named_so() -> None:
    fitted = (GB10.prefill_efficiency, HALF_ATTENTION, paper.PREFILLED_TOKENS, LAM_REMOVAL, L0_REMOVAL, GB10.memory)
    assert {constant.kind for constant in fitted} == {"fitted"}
    assert [constant.value for constant in fitted[:3]] == [0.70, 0.5, 598]


@pytest.mark.parametrize(("method", "removal"), [("observation masking k=5", 0.7516), ("SemDeDup cos 0.95", 0.3165)])
def test_a_removal_that_prints_the_same_two_digits_gives_the_row_to_a_thousandth(method: str, removal: float) -> None:
    (row,) = (row for row in TABLES["table2_latency_s_per_turn"] if row["method"] == method)
    assert round(removal, 2) == row["r_eff"]
    for batch in (1, 32):
        seconds = mean_turn(removal, batch, method)
        assert seconds == pytest.approx(row[f"batch_{batch}"], rel=1e-3)
        ratio = seconds / mean_turn(LAM_REMOVAL.value, batch, LAM.name)
        assert round(ratio, 1) == pytest.approx(row[f"ratio_{batch}"], abs=0.1)


def test_538_seconds_for_360k_tokens_are_the_attention_alone() -> None:
    """Not reproduced: with its linear part the rebuild takes 17% longer, and table 8 needs that part."""
    engine, printed = paper_engine(), TABLES["reprefill_360K_tokens_s"]
    seconds = rebuild_seconds(engine, 360_000)
    assert seconds == pytest.approx(1.17 * printed, rel=CLOSE)
    assert seconds - engine.prefill_seconds(360_000) == pytest.approx(printed, rel=CLOSE)


def test_no_natural_ratio_is_the_snapshots_122() -> None:
    """Not reproduced: neither contexts, nor turns at either batch, nor their decode steps stand in this ratio."""
    printed = TABLES["table27"]["snapshot_l1_over_l0"]
    contexts = [TURN_TOKENS.value / removal.value for removal in (L0_REMOVAL, LAM_REMOVAL)]
    ratios = [contexts[0] / contexts[1]]
    for batch in (1, 32):
        ours, theirs = (turn_at(context, batch) for context in reversed(contexts))
        ratios += [theirs.total / ours.total, (theirs.weights + theirs.kv_read) / (ours.weights + ours.kv_read)]
    assert all(abs(ratio / printed - 1) > NEAR for ratio in ratios), ratios


def test_what_the_papers_gain_rests_on() -> None:
    """Prefilling only what lies behind a fresh deletion, not the whole cache, leaves 1.08 and 1.10 of 71 and 92."""
    run = paper_run(LAM.removal)
    for batch, gain in ((1, 1.08), (32, 1.10)):
        engine = paper_engine(batch)
        later, admitted = (mean(schedule(engine, run, LAM.compaction)) for schedule in (suffix, admit))
        assert later.reprefill == pytest.approx(0.86, abs=0.005)
        assert round(later.total / admitted.total, 2) == gain


def test_a_literal_budget_costs_seconds_not_minutes() -> None:
    """Against 108 to 790 s of table 2."""
    expected = (3.3, 9.3, 3.9, 4.2)
    for method, seconds in zip(METHODS, expected, strict=False):
        costs = wall_budget(paper_engine(), paper_run(), method.compaction, 32_000, method.removal)
        assert mean(costs).total == pytest.approx(seconds, rel=0.015)


def test_full_attention_over_the_cache_makes_the_mean_turn_longer() -> None:
    class FullAttention(PaperAccounting):
        prefill_pairs = ExactAccounting.prefill_pairs

    engine = Engine(GB10, LLAMA_3_1_8B, 1, FullAttention())
    run = paper_run(LAM.removal)
    assert mean(admit(engine, run, LAM.compaction)).total == pytest.approx(12.3, abs=0.05)
    assert mean(suffix(engine, run, LAM.compaction)).reprefill == pytest.approx(1.60, abs=0.005)


def test_credit_for_what_is_not_prefilled_is_a_fifth_of_a_second() -> None:
    class Credited(PaperAccounting):
        prefilled_tokens = ExactAccounting.prefilled_tokens

    class CreditedByShare(PaperAccounting):
        def prefilled_tokens(self, turn, *, admitted):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
            return turn.arriving_tokens * (1 - LAM_REMOVAL.value)

    run = paper_run(LAM.removal)
    shared, credited = (
        mean(admit(Engine(GB10, LLAMA_3_1_8B, 1, accounting()), run, LAM.compaction)).total
        for accounting in (CreditedByShare, Credited)
    )
    assert shared == pytest.approx(11.20, abs=0.01) and credited == pytest.approx(shared, rel=0.002)


def order_over_tokens(device: Device, tokens: float) -> list[str]:
    engine = Engine(device, LLAMA_3_1_8B)
    seconds = {name: compaction(engine, tokens) for name, compaction in COMPACTIONS.items()}
    return sorted(seconds, key=seconds.__getitem__, reverse=True)


@given(st.floats(500, 1e7))
def test_the_order_of_compactions_is_the_same_on_gb10_and_a100_over_t(tokens: float) -> None:
    """Figure 8's claim, of the seconds that deciding takes over T tokens; the two that encode lie 0.01% apart.

    It follows from the preset and is no finding about the A100: its encoder is GB10's, scaled by the ratio of the
    matrix rates, and what runs beside the encoder is GB10's as it is.
    """
    assert order_over_tokens(GB10, tokens) == order_over_tokens(A100_40GB, tokens)


@pytest.mark.parametrize("turns", [20, 200, 1453])
@pytest.mark.parametrize("batch", [1, 32])
def test_the_order_of_methods_is_the_same_on_gb10_and_a100(turns: int, batch: int) -> None:
    """The same of whole turns by run length, in the paper's accounting: its contexts fit neither memory.

    Here too the compactors' rates are no measurement of an A100, but decode steps and prefills go by its data sheet.
    """
    orders = []
    for device in (GB10, A100_40GB):
        engine = Engine(device, LLAMA_3_1_8B, batch, paper_engine().accounting)
        seconds = {}
        for method in METHODS:
            run = paper_run(method.removal)[:turns]
            schedule = admit if method.admits else wall_every_turn
            seconds[method.name] = mean(schedule(engine, run, method.compaction)).total
        orders.append(sorted(seconds, key=seconds.__getitem__))
    assert orders[0] == orders[1]
