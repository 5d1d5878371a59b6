"""Evidence over many runs, by hand; and what the harness itself must never lose."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lam_vllm.encoders.base import Encoder
from lam_vllm.evaluation.baselines.l0 import RepeatedLines
from lam_vllm.evaluation.baselines.l1 import NearDuplicates
from lam_vllm.evaluation.baselines.masking import ObservationMasking
from lam_vllm.evaluation.baselines.none import NoCompaction
from lam_vllm.evaluation.baselines.profiles import ProfileMethod
from lam_vllm.evaluation.baselines.windowed import WindowEmbeddings
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.evidence import gold_lines
from lam_vllm.evaluation.measures.gold import (
    LostLine,
    Unmeasurable,
    gold_rates,
    harness_faults,
    line_retention,
    lost_lines,
    net_removal,
    word_retention,
)
from lam_vllm.evaluation.measures.layers import cut, exact_layer, near_layer
from lam_vllm.evaluation.remembered import RememberedEncoder
from lam_vllm.evaluation.score import score
from tests.core.chats import BagOfWords

from .made_rows import row

PATCH = "@@ -1,3 +1,2 @@\n-alpha one\n-beta two\n gamma three\n"


def run_of(*results: str, patch: str | None = PATCH) -> Run:
    return Run("r", "agent", tuple({"role": "tool", "content": result} for result in results), patch, True)


class Summary:
    """Writes anew, so that no line of it says what was kept."""

    name, setting, seed, verbatim = "summary", "", 0, False

    def shorten(self, run: Run) -> list[object]:
        return [{"role": "tool", "content": "There was an alpha one."} for _ in run.messages]


def test_micro_counts_lines_and_macro_counts_runs() -> None:
    rates = gold_rates(
        [
            row("a", gold_witnessed=2, gold_kept=1, gold_relaxed=2),
            row("b", gold_witnessed=8, gold_kept=8, gold_relaxed=8),
            row("no patch", has_gold=False, gold_witnessed=0, gold_kept=0, gold_relaxed=0),
        ]
    )
    assert (rates.runs, rates.witnessed) == (2, 10)
    assert (rates.strict_micro, rates.strict_macro) == (0.9, 0.75)
    assert (rates.relaxed_micro, rates.relaxed_macro) == (1.0, 1.0)


def test_of_new_text_nothing_is_said_rather_than_that_all_is_lost() -> None:
    made = score(Summary(), run_of("alpha one", "beta two"), len)
    rates = gold_rates([made])
    assert rates.witnessed == 2
    assert {str(rates.strict_micro), str(rates.strict_macro), str(rates.relaxed_micro), str(rates.relaxed_macro)} == {
        "not measurable: writes new text"
    }
    assert str(line_retention([made])) == "not measurable: writes new text"
    assert str(lost_lines(Summary(), [])) == "not measurable: writes new text"


def test_where_nothing_could_be_lost_no_share_is_given() -> None:
    nothing = [row(gold_witnessed=0, gold_kept=0, gold_relaxed=0, observation_tokens=0, emitted_tokens=0)]
    assert str(gold_rates(nothing).strict_micro) == "not measurable: no run shows a line of its gold patch"
    assert isinstance(gold_rates([]).relaxed_macro, Unmeasurable)
    assert str(net_removal(nothing)) == "not measurable: no run has tool output"
    assert str(word_retention(nothing)) == "not measurable: no line is that long"


def test_lines_and_words_are_pooled_over_runs() -> None:
    rows = [
        row("a", distinct_lines=10, readable_lines=4, long_words=0, readable_words=0),
        row("b", distinct_lines=30, readable_lines=30, long_words=8, readable_words=2),
    ]
    assert (line_retention(rows), word_retention(rows)) == (0.85, 0.25)


def test_removal_is_pooled_over_tokens_and_may_be_negative() -> None:
    assert net_removal([row("a", emitted_tokens=20), row("b", observation_tokens=300, emitted_tokens=280)]) == 0.25
    assert net_removal([row(emitted_tokens=110)]) == pytest.approx(-0.1)


def test_lost_lines_are_listed_by_run_in_the_order_of_the_patch() -> None:
    shown = run_of("beta two\nalpha one", "gamma three", "nothing")
    found = lost_lines(ObservationMasking(2), [shown, run_of("alpha one", patch=None)])
    assert not isinstance(found, Unmeasurable)
    assert list(found) == [LostLine("agent", "r", "alpha one"), LostLine("agent", "r", "beta two")]


def test_a_harness_that_loses_lines_by_itself_is_named() -> None:
    faults = harness_faults(
        [
            row("a", method="none", setting="", gold_kept=3),
            row("a", method="l0", setting=""),
            row("b", method="l0", setting="", gold_kept=0),
            row("a", method="masking", gold_kept=1),
        ]
    )
    assert faults == ["none keeps 3 of 4 gold lines of a", "l0 keeps 0 of 4 gold lines of b"]


def test_a_profile_that_keeps_more_than_a_baseline_is_no_fault() -> None:
    # `paper` lets text pass that looks like a stub or is too large; the baseline L1 does not
    of_paper = row(method="paper", setting="t=0.95", gold_kept=4)
    assert harness_faults([row(method="l1", setting="t=0.95", gold_kept=1), of_paper]) == []


def test_on_recorded_runs_the_harness_loses_nothing_by_itself(
    six_runs: list[Run], count_tokens: Callable[[str], int]
) -> None:
    rows = [score(method, run, count_tokens) for run in six_runs for method in (NoCompaction(), RepeatedLines())]
    assert sum(each.gold_witnessed for each in rows) > 50
    assert harness_faults(rows) == []


def test_on_a_recorded_run_lines_that_l1_loses_are_lost_once(
    six_runs: list[Run], count_tokens: Callable[[str], int], encoder: Encoder, tmp_path: Path
) -> None:
    run = next(run for run in six_runs if run.id == "openhands_study/matplotlib__matplotlib-22711")
    remembered = RememberedEncoder(encoder, tmp_path / "embeddings")
    alone = score(NearDuplicates(0.7, WindowEmbeddings(remembered)), run, count_tokens)
    composed = score(ProfileMethod("paper", count_tokens, remembered, 0.7), run, count_tokens)
    remembered.close()
    assert (alone.gold_witnessed, alone.gold_kept) == (28, 16)
    assert composed.emitted_tokens < alone.emitted_tokens
    assert composed.gold_kept == alone.gold_kept


WORDS = ("alpha", "beta", "gamma", "delta", "one", "two", "three")
LINES = st.lists(st.sampled_from(WORDS), min_size=2, max_size=6).map(" ".join)
TEXTS = st.lists(st.lists(LINES, max_size=30).map("\n".join), min_size=1, max_size=5)


@settings(deadline=None)
@given(TEXTS, st.lists(LINES, min_size=1, max_size=8), st.sampled_from([0.7, 0.8, 0.9, 0.99]))
def test_l0_loses_no_evidence_alone_and_none_behind_l1(texts: list[str], gold: list[str], t: float) -> None:
    encoder = BagOfWords()
    patch = f"@@ -1,{len(gold)} +0,0 @@\n" + "".join(f"-{line}\n" for line in gold)
    run = run_of(*texts, patch=patch)

    def lost(left: tuple[str, ...]) -> tuple[str, ...]:
        return gold_lines(run.messages, run_of(*left).messages, patch).lost

    assert lost(exact_layer(texts, len)[0]) == ()
    near = near_layer(cut(texts, encoder), encoder.encode, encoder.dimension, t)
    assert lost(exact_layer(near.left, len)[0]) == lost(near.left)


@settings(deadline=None)
@given(TEXTS, st.lists(LINES, min_size=1, max_size=8), st.sampled_from([0.7, 0.8, 0.9, 0.99]))
def test_the_paper_profile_loses_what_l1_loses(texts: list[str], gold: list[str], t: float) -> None:
    encoder: Encoder = BagOfWords()
    patch = f"@@ -1,{len(gold)} +0,0 @@\n" + "".join(f"-{line}\n" for line in gold)
    run = run_of(*texts, patch=patch)
    alone = score(NearDuplicates(t, WindowEmbeddings(encoder)), run, len)
    assert score(ProfileMethod("paper", len, encoder, t), run, len).gold_kept == alone.gold_kept
