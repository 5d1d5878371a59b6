"""Rows over runs and methods: made once, and made again when what decides them changes."""

from __future__ import annotations

from pathlib import Path
from time import process_time
from typing import Any

import pytest

from lam_vllm.errors import OptionError
from lam_vllm.evaluation.baselines import Inputs
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.measure import code_digest, families, measure
from lam_vllm.evaluation.measures.ecr import FAMILIES
from lam_vllm.evaluation.rows import Row, RowStore

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


def test_an_unknown_method_is_refused_with_the_known_ones() -> None:
    with pytest.raises(OptionError, match="method: 'magic' is not allowed; allowed: none, l0"):
        families(["magic"], Inputs(len), sweep=False)


def test_a_family_that_cannot_run_has_a_reason() -> None:
    (family,) = families(["paper"], Inputs(len), sweep=False)
    assert not family.methods and family.reason == "no encoder was given"


def test_the_digest_of_the_code_stays_while_the_code_does() -> None:
    assert code_digest() == code_digest() and len(code_digest()) == 12
