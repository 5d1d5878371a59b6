"""The three profiles beside every baseline, per source: removed net of stubs, gold and distinct lines kept, CPU time.

One setting each: t = 0.95 where there is a t, and those of the paper's table 2 for the others. Every run under every
method is a row of results/baselines.jsonl, kept as soon as it is made, and every rate comes from these rows. Prints a
table for each source, and the same figures as one line of JSON, which results/baselines.json keeps.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from corpus_data import ROOT, SOURCES, corpus_runs
from methods import SETUP, measure_all, method_inputs
from rich.console import Console

from lam_vllm.evaluation.baselines import family_names
from lam_vllm.evaluation.measure import families
from lam_vllm.evaluation.measures.gold import Figure, harness_faults, net_removal
from lam_vllm.evaluation.measures.rates import rates
from lam_vllm.evaluation.rows import Row, by, keep_latest, read_rows

ROWS = ROOT / "bench/results/baselines.jsonl"
EXACT, ALIASES, GUARDED = ("exact", ""), ("exact", "directory aliases"), ("guarded", "t=0.95")
SHARED_LINES = ("guarded", "t=1")
"""`guarded` where only equal windows are near for the encoder: those that it chooses otherwise share lines."""
SPAN_FOLDING, OWN_TEXT = ("span_folding", "15 tokens"), ("span_folding", "own text too")


def keys(rows: list[Row]) -> dict[str, float | None]:
    """By source: removal of `exact` over that of span folding and of `guarded` over `exact`, and shares removed.

    `encoder_adds_points` is by how many points `guarded` removes more at t = 0.95 than at t = 1, where windows are
    chosen by shared lines alone. And, of all sources together, the lines and words that stay readable nowhere under
    `exact` and `guarded`.
    """
    figures: dict[str, float | None] = {}
    for source in SOURCES:
        of_source = {key: group for key, group in by(rows, "source", "method", "setting").items() if key[0] == source}
        exact, aliases, guarded, shared_lines, folding, own = (
            net_removal(of_source.get((source, *method), []))
            for method in (EXACT, ALIASES, GUARDED, SHARED_LINES, SPAN_FOLDING, OWN_TEXT)
        )
        figures[f"exact_over_span_folding_{source}"] = _ratio(exact, folding)
        figures[f"exact_over_span_folding_own_text_{source}"] = _ratio(exact, own)
        figures[f"guarded_over_exact_{source}"] = _ratio(guarded, exact)
        figures[f"encoder_adds_points_{source}"] = _points(guarded, shared_lines)
        figures[f"exact_removed_{source}"] = _ratio(exact, 1.0)
        figures[f"exact_with_aliases_removed_{source}"] = _ratio(aliases, 1.0)
    judged = [row for row in rows if row.method in ("exact", "guarded")]
    lines = sum(row.distinct_lines - (row.readable_lines or 0) for row in judged)
    words = sum(row.long_words - (row.readable_words or 0) for row in judged)
    return {**figures, "distinct_lines_lost": lines, "long_line_words_lost": words}


def _ratio(upper: Figure, lower: Figure) -> float | None:
    """None where one was not measured, or `lower` is nothing."""
    known = isinstance(upper, float) and isinstance(lower, float) and lower > 0
    return round(upper / lower, 4) if known else None  # type: ignore[operator]


def _points(upper: Figure, lower: Figure) -> float | None:
    """By how many points the one lies above the other; None where one was not measured."""
    known = isinstance(upper, float) and isinstance(lower, float)
    return round(100 * (upper - lower), 4) if known else None  # type: ignore[operator]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--method", choices=family_names(), action="append", help="only this one (may be repeated)")
    parser.add_argument("--source", choices=SOURCES, action="append", help="only this one (may be repeated)")
    parser.add_argument("--limit", type=int, help="of each source only the first runs")
    parser.add_argument("--summary-url", help="an OpenAI-compatible server that writes summaries")
    parser.add_argument("--show", action="store_true", help="measure nothing, print what the file holds")
    parser.add_argument("--rows", type=Path, default=ROWS, help="another file of rows, so that the results stay")
    asked = parser.parse_args()
    names, runs = asked.method or family_names(), corpus_runs(asked.source or SOURCES, asked.limit)
    inputs = method_inputs(runs, asked.summary_url)
    found = families(names, inputs, sweep=False)
    if not asked.show:
        measure_all(found, inputs, asked.rows)
        keep_latest(asked.rows, Row)
    wanted = {(run.source, run.id) for run in runs}
    rows = [row for row in read_rows(asked.rows, Row) if row.method in names and (row.source, row.run) in wanted]
    rows.sort(key=lambda row: (SOURCES.index(row.source), names.index(row.method), row.setting, row.seed))
    with_rows = {row.method for row in rows}
    left_out = {family.name: family.reason for family in found if family.reason and family.name not in with_rows}
    tables = rates(rows)
    for table in tables:
        Console().print(table.terminal())
    figures: dict[str, Any] = {"setup": SETUP, "left_out": left_out, **keys(rows), "faults": harness_faults(rows)}
    print(json.dumps({**figures, "table": [record for table in tables for record in table.json()]}))


if __name__ == "__main__":
    main()
