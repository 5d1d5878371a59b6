"""What a benchmark printed last, and how it is written as a table."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from corpus_data import SOURCES

HERE = Path(__file__).parent


def stored(name: str) -> dict[str, Any]:
    """The line of JSON that the benchmark `name` printed last."""
    figures: dict[str, Any] = json.loads(_results(name).read_text(encoding="utf-8"))
    return figures


def measured_or_stored(
    about: str, name: str, measure: Callable[[Sequence[str], int | None], dict[str, Any]]
) -> dict[str, Any]:
    """The figures that the command line asks for: `measure` of sources and limit, or with `--show` the stored ones.

    What was measured of the whole corpus is stored.
    """
    parser = argparse.ArgumentParser(description=about.split("\n", maxsplit=1)[0])
    parser.add_argument("--source", choices=SOURCES, action="append", help="only this one (may be repeated)")
    parser.add_argument("--limit", type=int, help="of each source only the first runs")
    parser.add_argument("--show", action="store_true", help="measure nothing, print what the file holds")
    asked = parser.parse_args()
    if asked.show:
        return stored(name)
    text = json.dumps(measure(asked.source or SOURCES, asked.limit))
    if not asked.source and asked.limit is None:
        _results(name).write_text(text + "\n", encoding="utf-8")
    figures: dict[str, Any] = json.loads(text)  # keys as the file has them
    return figures


def markdown(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table whose first column is text and whose others are figures."""
    first, *others = headings
    head = f"| {first} | {' | '.join(others)} |\n|---|{'---:|' * len(others)}"
    return "\n".join([head, *(f"| {' | '.join(row)} |" for row in rows)])


def written(value: Any, form: Callable[[Any], str]) -> str:
    """A figure as a cell; what could not be measured stands in the file as words that say so."""
    if isinstance(value, str):
        return "not measurable" if "new text" in value else "-"
    return "-" if value is None else form(value)


def _results(name: str) -> Path:
    return HERE / "results" / f"{name}.json"
