"""Writes the tables of README.md anew from the results that are kept beside it."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import evidence_tables
from corpus_data import SOURCES
from removal_rows import RESULTS, RemovalRow
from removal_table import print_table, table
from stored import HERE, markdown, stored

from lam_vllm.evaluation.measures.ecr import FLOORS
from lam_vllm.evaluation.rows import read_rows
from lam_vllm.evaluation.tables import number, percent

README = HERE / "README.md"


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


def ratios() -> str:
    figures = stored("baselines")
    columns = {
        "exact_over_span_folding": "exact over span folding",
        "exact_over_span_folding_own_text": "own text too",
        "guarded_over_exact": "guarded over exact",
        "exact_removed": "exact removes",
        "exact_with_aliases_removed": "with aliases",
    }
    return markdown(
        ("source", *columns.values()),
        ((source, *(_written(figures[f"{key}_{source}"], "{:.3f}".format) for key in columns)) for source in SOURCES),
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
    """The two layers in both orders, and what independence would predict, at every t (the paper's table 12)."""
    figures = stored("paper_numbers")
    shares = ("l0", "l1_gross", "l1_net", "l1_l0_gross", "l1_l0_net", "l0_l1_gross", "l0_l1_net", "independence")
    return markdown(
        ("t", "L0", "L1", "L1 net", "L1, L0", "L1, L0 net", "L0, L1", "L0, L1 net", "if independent"),
        ((t, *(f"{line[name]:.2f}%" for name in shares)) for t, line in figures["by_threshold"].items()),
    )


def main() -> None:
    makers: dict[str, Callable[[], str]] = {
        "machine": setup,
        "speed": speed,
        "late_turn": late_turn,
        "keys": keys,
        "removal": removal,
        "baselines": baselines,
        "ratios": ratios,
        "ecr": ecr,
        "paper": paper,
        "embedding_space": evidence_tables.embedding_space,
        "margins": evidence_tables.margins,
        "relations": evidence_tables.relations,
        "encoders": evidence_tables.encoders,
        "determinism": evidence_tables.determinism,
        "semdedup_seeds": evidence_tables.semdedup_seeds,
        "references": lambda: evidence_tables.wordings("references"),
        "aliases": lambda: evidence_tables.wordings("aliases"),
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
