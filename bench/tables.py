"""Writes the tables of README.md anew from the results that are kept beside it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from removal_rows import RESULTS, RemovalRow
from removal_table import print_table, table

from lam_vllm.evaluation.measures.ecr import FLOORS
from lam_vllm.evaluation.rows import read_rows
from lam_vllm.evaluation.tables import number, percent

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
        print_table(table(read_rows(RESULTS, RemovalRow)))
    return printed.getvalue().strip()


def setup() -> str:
    return "\n".join(sorted({row.setup for row in read_rows(RESULTS, RemovalRow)}))


def baselines() -> str:
    forms: dict[str, Callable[[Any], str]] = {
        "runs": str,
        "removed_net": percent(2),
        "gold_kept": percent(2),
        "gold_kept_relaxed": percent(2),
        "gold_witnessed": number(","),
        "lines_kept": percent(2),
        "distinct_lines": number(","),
        "cpu_ms_per_1k_tokens": number(",.2f"),
    }
    return markdown(
        ("source", "method", "runs", "removed, net", "gold kept", "relaxed", "of", "lines kept", "of", "ms per 1K"),
        (
            (line["source"], line["label"], *(_written(line[key], form) for key, form in forms.items()))
            for line in stored("baselines")["table"]
        ),
    )


def ecr() -> str:
    figures = stored("ecr")
    return markdown(
        ("source", "family", *(f"{floor:.3f}, at" for floor in FLOORS)),
        (
            (line["source"], line["method"], *(_binding(line, f"{floor:.3f}") for floor in FLOORS))
            for name, lines in figures.items()
            if name.startswith("ecr_")
            for line in lines
        ),
    )


def _binding(line: dict[str, Any], floor: str) -> str:
    at = line[f"at_{floor}"]
    return f"{_written(line[f'ecr_{floor}'], percent(2))}{f' at {at}' if at else ''}"


def _written(value: Any, form: Callable[[Any], str]) -> str:
    """What could not be measured stands in the file as words that say so."""
    if isinstance(value, str):
        return "not measurable" if "new text" in value else "-"
    return "-" if value is None else form(value)


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
        "machine": setup,
        "speed": speed,
        "late_turn": late_turn,
        "keys": keys,
        "removal": removal,
        "baselines": baselines,
        "ecr": ecr,
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
