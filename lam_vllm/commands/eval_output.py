"""What an evaluation found, printed and written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console

from lam_vllm.evaluation.rows import Row
from lam_vllm.evaluation.tables import Figures


@dataclass(frozen=True, slots=True)
class Outputs:
    """Which files the command writes beside the rows."""

    csv: bool
    json: bool
    figures: bool


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The rows of an evaluation and its tables, which families were left out and why, and what the rows prove wrong."""

    rows: Sequence[Row]
    tables: Sequence[Figures]
    left_out: dict[str, str]
    faults: Sequence[str]


def show(result: Evaluated) -> None:
    """Prints the tables; what was left out and what is wrong goes to the error stream."""
    console = Console()
    for table in result.tables:
        if table.columns:
            console.print(table.terminal())
    for name, reason in result.left_out.items():
        typer.echo(f"left out: {name}: {reason}", err=True)
    for fault in result.faults:
        typer.echo(f"the harness is wrong: {fault}", err=True)


def write_json(result: Evaluated, target: Path) -> None:
    """All tables by name, and what was left out, in one JSON object."""
    tables: dict[str, list[object]] = {}
    for table in result.tables:
        tables.setdefault(table.name, []).extend(table.json())
    target.write_text(json.dumps({**tables, "left_out": result.left_out}, indent=1) + "\n", encoding="utf-8")


def write_csv(result: Evaluated, folder: Path) -> None:
    """A file for each kind of table."""
    for name in dict.fromkeys(table.name for table in result.tables):
        same = [table for table in result.tables if table.name == name]
        together = Figures(name, "", (), [record for table in same for record in table.records])
        (folder / f"{name}.csv").write_text(together.csv(), encoding="utf-8")
