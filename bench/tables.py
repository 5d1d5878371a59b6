"""Writes the tables of README.md anew from the results that are kept beside it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from removal_rows import read_rows, stored_setup
from removal_table import print_table, table

HERE = Path(__file__).parent
README = HERE / "README.md"


def stored(name: str) -> dict[str, Any]:
    """The line of JSON that the benchmark `name` printed last."""
    figures: dict[str, Any] = json.loads((HERE / "results" / f"{name}.json").read_text(encoding="utf-8"))
    return figures


def markdown(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table whose first column is text and whose others are figures."""
    first, *others = headings
    head = f"| {first} | {' | '.join(others)} |\n|---|{'---:|' * len(others)}"
    return "\n".join([head, *(f"| {' | '.join(row)} |" for row in rows)])


def speed() -> str:
    figures = stored("compactor")
    lines = {**figures["sources"], "all": figures}
    return markdown(
        ("source", "tool output", "all messages", "exact", "counting", "recognise"),
        (
            (
                source,
                f"{line['new_tokens']:,.0f}",
                f"{line['history_tokens']:,.0f}",
                f"{line['exact_cpu_ms_per_10k_tokens']:.2f}",
                f"{line['token_count_ms_per_10k_tokens']:.2f}",
                f"{line['recognise_ms_per_10k_tokens']:.3f}",
            )
            for source, line in lines.items()
        ),
    )


def late_turn() -> str:
    figures = stored("compactor")
    return markdown(
        ("profile, turn", "lines", "windows", "encoder calls", "CPU ms", "without recognising"),
        (
            (
                f"{profile}, {number}",
                *(str(turn[name]) for name in ("lines", "windows", "encoder_calls")),
                *(f"{1e3 * turn[name]:.2f}" for name in ("cpu_seconds", "new_cpu_seconds")),
            )
            for profile in ("exact", "guarded")
            for number in (10, 100)
            for turn in [figures[f"{profile}_turns"][f"turn{number}"]]
        ),
    )


def keys() -> str:
    figures = stored("compactor")
    return markdown(
        ("key", "value"),
        ((f"`{name}`", str(value)) for name, value in figures.items() if isinstance(value, float)),
    )


def removal() -> str:
    with redirect_stdout(io.StringIO()) as printed:
        print_table(table(list(read_rows(stored_setup()).values())))
    return printed.getvalue().strip()


def paper() -> str:
    figures = stored("paper_numbers")
    shares = ("l0", "l1_gross", "l1_net", "l1_l0_gross", "l1_l0_net")
    return markdown(
        ("tokens", "windows", "dropped", "L0", "L1", "L1 net", "L1, L0", "L1, L0 net"),
        [
            (
                f"{figures['observation_tokens']:,}",
                str(figures["windows"]),
                str(figures["dropped_windows"]),
                *(f"{figures[name]:.2f}%" for name in shares),
            )
        ],
    )


def main() -> None:
    makers: dict[str, Callable[[], str]] = {
        "machine": stored_setup,
        "speed": speed,
        "late_turn": late_turn,
        "keys": keys,
        "removal": removal,
        "paper": paper,
    }
    text = README.read_text(encoding="utf-8")
    for name, make in makers.items():
        before, begin, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- /{name} -->")
        assert end, f"README.md has no place for {name}"
        text = f"{before}{begin}{make()}\n{end}{after}"
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
