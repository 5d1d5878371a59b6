"""Searches for near windows: what the banded one misses, what each looks at, and how long each takes.

Fixed windows of 510 wordpieces under MiniLM; embeddings come from the file of remembered.py. What is measured is said
in search_grid.py and search_growth.py; that the pruned search misses nothing is checked, and a miss ends the program.
Prints tables, and the same figures as one line of JSON, which results/search.json keeps.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import search_tables
from corpus_data import corpus_runs, machine
from remembered import RememberedEncoder
from search_grid import Embedded, all_pairs, drops, left_out
from search_growth import SIZES, growth
from stored import measured_or_stored

from lam_vllm.encoders import load_encoder
from lam_vllm.encoders.base import traits_of
from lam_vllm.evaluation.baselines.windowed import WindowEmbeddings
from lam_vllm.search.basis import read_basis

TABLES = ("grid", "drops", "left_out", "growth", "equal")


def measure(sources: Sequence[str], limit: int | None) -> dict[str, Any]:
    encoder = load_encoder("minilm")
    basis_file = traits_of(encoder).basis
    assert basis_file is not None
    basis = read_basis(basis_file, encoder.dimension)
    windows = WindowEmbeddings(RememberedEncoder(encoder))
    runs = [
        Embedded(run.source, windows.windowed(run).texts(), windows.rows(run)) for run in corpus_runs(sources, limit)
    ]
    figures: dict[str, Any] = {
        "machine": machine(),
        "windows": sum(len(run.rows) for run in runs),
        "all_pairs": all_pairs(runs),
        "drops": drops(runs, basis),
        "left_out": left_out(runs),
        "growth": growth(runs, basis, encoder, SIZES[-1] if limit is None else 10_000),
    }
    pruned = [line for line in figures["drops"] if line["search"] == "pruned"] + figures["left_out"]
    if missed := sum(line["dropped"] - line["still_dropped"] for line in pruned):
        sys.exit(f"the pruned search missed {missed} drops")
    return figures


def main() -> None:
    figures = measured_or_stored(__doc__, "search", measure)
    print(f"{figures['machine']}; {figures['windows']:,} windows")
    for name in TABLES:
        make = getattr(search_tables, name)
        print(f"\n{make.__doc__}\n\n{make(figures)}")
    print(f"\nEncoding a full window takes {1e3 * figures['growth']['encode_seconds']:.1f} ms of CPU time.\n")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
