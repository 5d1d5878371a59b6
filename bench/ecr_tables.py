"""Tables of what each family removes at a floor of evidence, and of what removal may mean, for README.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from baselines import ROWS
from stored import markdown, stored, written

from lam_vllm.evaluation.measures.ecr import FLOORS
from lam_vllm.evaluation.measures.outcomes import BUDGETS_TOKENS
from lam_vllm.evaluation.rows import Row, read_rows
from lam_vllm.evaluation.study.sweep import KAPPAS, settings_table
from lam_vllm.evaluation.tables import number, percent

SHOWN = (
    "l0",
    "exact",
    "exact directory aliases",
    "paper t=0.95",
    "paper t=0.9",
    "semdedup t=0.95",
    "masking k=20",
    "masking k=10",
    "masking k=5",
)


def ecr() -> str:
    return markdown(
        ("source", "family", *(f"{floor:.3f}, at" for floor in FLOORS)),
        (
            (line["source"], line["method"], *(_binding(line, f"{floor:.3f}") for floor in FLOORS))
            for line in _stored("ecr")
        ),
    )


def _binding(line: dict[str, Any], floor: str) -> str:
    at = line[f"at_{floor}"]
    return f"{written(line[f'ecr_{floor}'], percent(2))}{f' at {at}' if at else ''}"


def floors() -> str:
    """What each floor of evidence lets through, at worst (the paper's table 16)."""
    settings = {source: len(lines) for source, lines in _by_source("settings").items()}
    return markdown(
        ("source, floor", "settings that keep it", "of", "runs that lose a gold line", "RSC given up"),
        (
            (
                f"{line['source']}, {line['floor']:.3f}",
                str(line["admissible"]),
                str(settings[line["source"]]),
                written(line["losing_runs"], percent(2)),
                written(line["rsc_drop"], percent(2)),
            )
            for line in _stored("floors")
        ),
    )


def outcomes() -> str:
    """RSC, BFR and eta of some settings beside those of no compaction (the paper's tables 3, 18 and 19)."""
    headings = ("net", "gold kept", "RSC", *(f"BFR@{budget // 1000}K" for budget in BUDGETS_TOKENS))
    forms = {
        "removed_net": percent(2),
        "gold_kept": percent(2),
        "rsc": percent(2),
        **{f"bfr_{budget}": percent(1) for budget in BUDGETS_TOKENS},
        **{f"eta_{kappa}": number(".3f") for kappa in KAPPAS},
        "break_even": number(".1f"),
    }
    return markdown(
        ("source", "method", *headings, *(f"eta({kappa})" for kappa in KAPPAS), "break-even"),
        (
            (source, line["label"], *(written(line[key], form) for key, form in forms.items()))
            for source, lines in _by_source("settings").items()
            for line in [_uncompacted(source), *sorted(_shown(lines), key=lambda line: SHOWN.index(line["label"]))]
        ),
    )


def _uncompacted(source: str) -> dict[str, Any]:
    rows = [row for row in read_rows(ROWS, Row) if row.method == "none" and row.source == source]
    (line,) = settings_table(rows, None).json()
    return line


def _shown(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["label"] in SHOWN]


def _stored(table: str) -> Iterator[dict[str, Any]]:
    return (line for lines in _by_source(table).values() for line in lines)


def _by_source(table: str) -> dict[str, list[dict[str, Any]]]:
    """The lines of one of the tables in results/ecr.json, by source."""
    begin = f"{table}_"
    return {name.removeprefix(begin): lines for name, lines in stored("ecr").items() if name.startswith(begin)}
