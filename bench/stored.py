"""What a benchmark printed last, and how it is written as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def stored(name: str) -> dict[str, Any]:
    """The line of JSON that the benchmark `name` printed last."""
    figures: dict[str, Any] = json.loads((HERE / "results" / f"{name}.json").read_text(encoding="utf-8"))
    return figures


def markdown(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table whose first column is text and whose others are figures."""
    first, *others = headings
    head = f"| {first} | {' | '.join(others)} |\n|---|{'---:|' * len(others)}"
    return "\n".join([head, *(f"| {' | '.join(row)} |" for row in rows)])
