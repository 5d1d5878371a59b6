"""Rows over runs and methods: made once, and made again when what decides them changes."""

from __future__ import annotations

from pathlib import Path
from time import process_time
from typing import Any

import pytest

from lam_vllm.errors import OptionError
from lam_vllm.evaluation.baselines import Inputs, WindowEmbeddings, family_names
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.measure import NEAR_FAMILIES, code_digest, families, measure
from lam_vllm.evaluation.measures.ecr import FAMILIES
from lam_vllm.evaluation.rows import Row, RowStore
from lam_vllm.evaluation.score import score
from tests.core.chats import BagOfWords

RUNS = [Run(name, "agent", ({"role": "tool", "content": name},)) for name in "abc"]


class Noting:
    """Leaves everything as it is, and notes the runs that it was given."""

    setting, seed, verbatim = "", 0, True

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: list[str] = []

    def shorten(self, run: Run) -> list[Any]:
        self.seen.append(run.id)
        return list(run.messages)


def rows(path: Path, method: Noting, runs: list[Run]) -> list[Row]:
    return list(measure([method], runs, len, RowStore(path / "rows.jsonl", "", Row), process_time))


def test_a_row_is_made_once(tmp_path: Path) -> None:
    method = Noting("own")
    made = rows(tmp_path, method, RUNS[:2])
    assert rows(tmp_path, method, RUNS)[:2] == made
    assert method.seen == ["a", "b", "c"]


def test_an_interruption_keeps_what_was_finished(tmp_path: Path) -> None:
    class Failing(Noting):
        def shorten(self, run: Run) -> list[Any]:
            if run.id == "b" and len(self.seen) < 2:
                self.seen.append(run.id)
                raise KeyboardInterrupt
            return super().shorten(run)

    method = Failing("own")
    with pytest.raises(KeyboardInterrupt):
        rows(tmp_path, method, RUNS)
    assert len(rows(tmp_path, method, RUNS)) == 3
    assert method.seen == ["a", "b", "b", "c"]


def test_what_depends_on_all_runs_is_made_again_for_others(tmp_path: Path) -> None:
    method = Noting("semdedup_global")
    rows(tmp_path, method, RUNS[:2])
    rows(tmp_path, method, RUNS[:2])
    rows(tmp_path, method, RUNS)
    assert method.seen == ["a", "b", "a", "b", "c"]


def test_a_sweep_takes_the_papers_grid_and_else_one_setting() -> None:
    inputs = Inputs(len)
    (swept,), (one,) = (families(["masking"], inputs, sweep=sweep) for sweep in (True, False))
    grid = next(family for family in FAMILIES if family.method == "masking")
    assert tuple(method.setting for method in swept.methods) == grid.settings
    assert [method.setting for method in one.methods] == ["k=5"]


def test_what_is_usual_is_swept_too(tmp_path: Path) -> None:
    encoder = BagOfWords()
    encoder.threshold_cos = 0.93  # in no grid
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    inputs = Inputs(len, (), encoder, WindowEmbeddings(encoder), str(tmp_path), str(tmp_path))
    names = [name for name in family_names() if name != "summaries"]  # whose models a server knows
    for usual, swept in zip(*(families(names, inputs, sweep=sweep) for sweep in (False, True)), strict=True):
        assert usual.methods, usual.reason
        assert {method.setting for method in usual.methods} <= {method.setting for method in swept.methods}
    (lingua,) = families(["llmlingua2_bert"], inputs, sweep=True)
    assert [method.setting for method in lingua.methods] == ["rate=0.33", "rate=0.5", "rate=0.8"]


def test_guarded_is_measured_without_its_encoder_too() -> None:
    encoder = BagOfWords()
    (found,) = families(["guarded"], Inputs(len, (), encoder), sweep=False)
    assert [method.setting for method in found.methods] == ["t=0.8", "t=1"]
    shown = "".join(f"{number}: the {word} stands beside the river\n" for number, word in enumerate("abcdefgh" * 4, 1))
    swapped = shown.replace("the d stands", "the d lies").replace("the f stands", "the f lies")
    run = Run("r", "agent", tuple({"role": "tool", "content": text} for text in (shown, swapped)))
    for method in found.methods:  # lines that both results hold go, whatever t is
        row = score(method, run, lambda text: len(text.split()))
        assert row.emitted_tokens < row.observation_tokens and row.readable_lines == row.distinct_lines


def test_a_family_without_an_encoder_says_so_in_a_sweep_and_without() -> None:
    for sweep in (False, True):
        found = families(NEAR_FAMILIES, Inputs(len), sweep=sweep)
        assert {family.reason for family in found} == {"no encoder was given"}


def test_an_unknown_method_is_refused_with_the_known_ones() -> None:
    with pytest.raises(OptionError, match="method: 'magic' is not allowed; allowed: none, l0"):
        families(["magic"], Inputs(len), sweep=False)


def test_a_family_that_cannot_run_has_a_reason() -> None:
    (family,) = families(["paper"], Inputs(len), sweep=False)
    assert not family.methods and family.reason == "no encoder was given"


def test_the_digest_of_the_code_stays_while_the_code_does() -> None:
    assert code_digest() == code_digest() and len(code_digest()) == 12
