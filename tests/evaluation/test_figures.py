"""Figures: which are drawn from what, that they are the same each time, and that a full chart still is one."""

from __future__ import annotations

from pathlib import Path

from lam_vllm.evaluation.study.figures import Measured, draw_figures
from tests.evaluation.made_rows import row


def names(measured: Measured, folder: Path) -> list[str]:
    return [path.stem for path in draw_figures(measured, folder)]


def test_without_anything_measured_nothing_is_drawn(tmp_path: Path) -> None:
    assert names(Measured(), tmp_path) == []


def test_encoders_are_bars(tmp_path: Path) -> None:
    assert names(Measured(encoders={"one": 0.3, "two": 0.1}), tmp_path) == ["figure_9d"]


def test_evidence_needs_a_family_with_a_line(tmp_path: Path) -> None:
    point = [row(method="l0", setting="", emitted_tokens=80)]
    line = [row(setting=f"k={k}", emitted_tokens=10 * k, gold_kept=k) for k in (2, 3, 4)]
    assert names(Measured(rows=point), tmp_path) == []
    assert names(Measured(rows=point + line), tmp_path) == ["figure_3"]


def test_methods_that_write_new_text_are_not_among_the_evidence(tmp_path: Path) -> None:
    new_text = [row(method="summaries", setting=f"rho={r}", gold_kept=None) for r in (0.1, 0.3)]
    assert names(Measured(rows=new_text), tmp_path) == []


def test_a_t_needs_two_values_to_be_an_axis(tmp_path: Path) -> None:
    rows = [row(method="paper", setting=f"t={t}", emitted_tokens=int(100 * t)) for t in (0.9, 0.95)]
    assert names(Measured(rows=rows), tmp_path) == ["figure_3", "figure_4"]
    assert names(Measured(rows=rows[:1]), tmp_path) == []


def test_more_names_than_a_chart_has_room_for_are_no_error(tmp_path: Path) -> None:
    rows = [row(method=f"method {n}", setting=f"k={k}", emitted_tokens=90 + k) for n in range(40) for k in (1, 2)]
    assert names(Measured(rows=rows), tmp_path) == ["figure_3"]


def test_the_same_figures_make_the_same_file(tmp_path: Path) -> None:
    rows = [row(run=str(size), method="exact", setting="", observation_tokens=size) for size in (100, 1000)]
    (first,) = draw_figures(Measured(defaults=rows), tmp_path)
    drawn = first.read_bytes()
    assert first.name == "figure_9b.png"
    assert draw_figures(Measured(defaults=rows), tmp_path) == [first] and first.read_bytes() == drawn
