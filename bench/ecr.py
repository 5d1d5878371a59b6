"""ECR@tau: the most that each family removes while it keeps a share tau of the gold lines, on the sources with patches.

Families, settings and seeds are those of the paper's tables 16 and 17, and `exact`. Every run under every setting and
seed is a row; rows are kept as they are made, in a file in the system's folder for temporary files, and
results/ecr.jsonl.xz is its packed copy, from which every rate comes. Prints three tables for each source, and the same
figures as one line of JSON, which results/ecr.json keeps.
"""

from __future__ import annotations

import argparse
import json
import lzma
import tempfile
from pathlib import Path

from corpus_data import ROOT, corpus_runs, served_tokens
from methods import SETUP, measure_all, method_inputs
from rich.console import Console

from lam_vllm.evaluation.measure import families
from lam_vllm.evaluation.measures.ecr import FAMILIES
from lam_vllm.evaluation.rows import Row, keep_latest, read_rows
from lam_vllm.evaluation.study.corpus_figures import sizes
from lam_vllm.evaluation.study.sweep import sweep_tables

SOURCES = ("mini_gemini3_verified", "openhands_study")
NAMES = ["exact", *(family.method for family in FAMILIES)]
ROWS = Path(tempfile.gettempdir()) / "lam_vllm_bench_ecr.jsonl"
PACKED = ROOT / "bench/results/ecr.jsonl.xz"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--family", choices=NAMES, action="append", help="only this one (may be repeated)")
    parser.add_argument("--source", choices=SOURCES, action="append", help="only this one (may be repeated)")
    parser.add_argument("--limit", type=int, help="of each source only the first runs")
    parser.add_argument("--show", action="store_true", help="measure nothing, print what the packed file holds")
    parser.add_argument("--rows", type=Path, default=ROWS, help="another file of rows, which is not packed")
    asked = parser.parse_args()
    names, sources = asked.family or NAMES, asked.source or SOURCES
    runs = corpus_runs(sources, asked.limit)
    if not asked.show:
        inputs = method_inputs(runs)
        measure_all(families(names, inputs, sweep=True), inputs, asked.rows)
        keep_latest(asked.rows, Row)
        if asked.rows == ROWS:
            PACKED.write_bytes(lzma.compress(asked.rows.read_bytes()))
    wanted = {(run.source, run.id) for run in runs}
    held = read_rows(PACKED if asked.show else asked.rows, Row)
    rows = [row for row in held if row.method in names and (row.source, row.run) in wanted]
    rows.sort(key=lambda row: (names.index(row.method), float(row.setting.partition("=")[2] or 0), row.seed))
    figures = {}
    for source in sources:
        workload = sizes([run for run in runs if run.source == source], served_tokens()).workload
        tables = sweep_tables(source, [row for row in rows if row.source == source], workload)
        for table in tables:
            Console(width=120).print(table.terminal())
            figures[f"{table.name}_{source}"] = table.json()
    print(json.dumps({"setup": SETUP, **figures}))


if __name__ == "__main__":
    main()
