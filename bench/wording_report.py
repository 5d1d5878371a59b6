"""The tables of stub_wording.py."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from wording_table import OFF

PAIRED = {
    "both_right": "both right",
    "off_right_on_wrong": "off only",
    "off_wrong_on_right": "on only",
    "p": "p",
    "copied": "copied",
}


def print_tables(measured: dict[str, Any]) -> None:
    """Prints, for references and for short names, accuracy by wording, and the same by kind and template."""
    console = Console(width=140)
    for name, length in (("references", "tokens a stub"), ("aliases", "points removed")):
        console.print(_accuracies(measured[name], f"{name}, {measured['model']}", length))
        console.print(_groups(measured[name]["accuracy"]))
    console.print(
        "off only, on only: questions that one of plugin off and on answers; p: the chance of so uneven a split.\n"
        "copied: answers that print a reference, or short name, itself. own, this: only the plugin's wording, or this."
    )


def _accuracies(figures: dict[str, Any], title: str, length: str) -> Table:
    table = Table("wording", title=title)
    for column in (length, "right", "accuracy (95%)", *PAIRED.values(), "own", "this", "p"):
        table.add_column(column, justify="right")
    for name, one in figures["accuracy"].items():
        low, high = one["interval95"]
        table.add_row(
            name,
            str(figures["lengths"].get(name, "")),
            f"{one['right']}/{one['questions']}",
            f"{one['accuracy']} ({low}-{high})",
            *(str(one[key]) if name != OFF else "" for key in PAIRED),
            *map(str, figures["against_own"].get(name, {}).values()),
        )
    return table


def _groups(accuracies: dict[str, Any]) -> Table:
    """Right answers of all, by kind of reference and by template."""
    table = Table("wording")
    groups = [(field, value) for field in ("kind", "template") for value in accuracies[OFF][field]]
    for _, value in groups:
        table.add_column(value, justify="right")
    for name, one in accuracies.items():
        table.add_row(name, *(one[field][value] for field, value in groups))
    return table
