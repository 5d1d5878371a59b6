"""Tables of figures: as records for JSON and CSV, and as a terminal shows them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import JustifyMethod
from rich.table import Table

from lam_vllm.evaluation.measures.gold import WRITES_NEW_TEXT, Unmeasurable

LABEL_WIDTH = 24


class Column(NamedTuple):
    """A key of the records, what the terminal calls it, how it writes a value, and the width at which words fold."""

    key: str
    heading: str
    text: Callable[[Any], str] = str
    width: int | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """A table: one record a row, which may hold more than the columns show. Shares are in 0..1.

    Tables of one `name` have records of one kind, such as those of several sources.

    A figure that could not be measured is `Unmeasurable`; None stands where there is none to expect.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    records: Sequence[Mapping[str, Any]]
    note: str = ""

    def json(self) -> list[dict[str, Any]]:
        """The records as JSON has them: what could not be measured becomes the words that say so."""
        return [{key: _plain(value) for key, value in record.items()} for record in self.records]

    def csv(self) -> str:
        """The same as CSV with a header; None is an empty cell."""
        text = io.StringIO()
        records = self.json()
        keys = dict.fromkeys(key for record in records for key in record)
        writer = csv.DictWriter(text, list(keys), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
        return text.getvalue()

    def terminal(self) -> Table:
        """The columns; `n/m` where a measure says nothing of a method, `-` where there was nothing to measure."""
        made = Table(title=self.title, caption=self.note or None, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for place, column in enumerate(self.columns):
            width = column.width or (None if place else LABEL_WIDTH)
            justify: JustifyMethod = "right" if place else "left"
            made.add_column(column.heading, justify=justify, no_wrap=not width, max_width=width, overflow="fold")
        for record in self.records:
            made.add_row(*(cell(record.get(column.key), column.text) for column in self.columns))
        return made


def cell(value: Any, text: Callable[[Any], str]) -> str:
    """The value in words."""
    if value is None:
        return "-"
    if isinstance(value, Unmeasurable):
        return "n/m" if value == WRITES_NEW_TEXT else "-"
    return text(value)


def percent(digits: int) -> Callable[[float], str]:
    """Writes a share as a percentage. Nothing is rounded to 100, so that 100 means all."""

    def text(share: float) -> str:
        written = f"{100 * share:.{digits}f}"
        return f"{100 - 10**-digits:.{digits}f}%" if share < 1 and float(written) >= 100 else f"{written}%"

    return text


def number(form: str) -> Callable[[float], str]:
    """Writes a number in this format."""
    return partial(_formatted, form)


def _formatted(form: str, value: float) -> str:
    return format(value, form)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Unmeasurable) else value
