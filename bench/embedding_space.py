"""The paper's figures of the embedding space, per source and t: kept, ceiling, distances, R@10, rate, rank margins.

Fixed windows of 510 wordpieces under MiniLM, each run by itself. For retrieval every fifth window of a run is a query
and in no index. That no query's best score falls by more than delta_hat is checked on every query; a failure ends the
program. Embeddings come from the file of remembered.py. Prints tables, and the same figures as one line of JSON, which
results/embedding_space.json keeps.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from corpus_data import corpus_runs, machine
from remembered import RememberedEncoder
from stored import measured_or_stored

from lam_vllm.encoders import Encoder, load_encoder
from lam_vllm.evaluation.baselines.windowed import WindowEmbeddings
from lam_vllm.evaluation.measures.relations import relations
from lam_vllm.evaluation.measures.space import Space, rank_margins, retrieval_figures, space, window_figures

THRESHOLDS = (0.99, 0.98, 0.96, 0.95, 0.90)
DIGITS = 6
Figures = dict[str, Any]


def spaces(source: str, limit: int | None, encoder: Encoder) -> list[Space]:
    windows = WindowEmbeddings(encoder)
    rows = (windows.rows(run) for run in corpus_runs([source], limit))
    return [space(embeddings) for embeddings in rows if len(embeddings)]


def at(runs: Sequence[Space], threshold_cos: float) -> Figures:
    search = retrieval_figures(runs, threshold_cos)
    if search.bound_violations:
        sys.exit(f"t = {threshold_cos}: the best score of {search.bound_violations} queries fell by over delta_hat")
    return {
        "t": threshold_cos,
        **asdict(window_figures(runs, threshold_cos)),
        "search": asdict(search),
        "relations": [asdict(figures) for figures in relations(runs, threshold_cos)],
    }


def measure(sources: Sequence[str], limit: int | None) -> Figures:
    encoder = RememberedEncoder(load_encoder("minilm"))
    by_source = {source: spaces(source, limit, encoder) for source in sources}
    if len(sources) > 1:
        by_source["all"] = [run for runs in by_source.values() for run in runs]
    figures = {
        source: {
            "runs": len(runs),
            "margins": [asdict(line) for line in rank_margins(runs)],
            "thresholds": [at(runs, threshold_cos) for threshold_cos in THRESHOLDS],
        }
        for source, runs in by_source.items()
    }
    return {"setup": machine(), "sources": rounded(figures)}


def rounded(value: Any) -> Any:
    """The same figures with fewer digits, so that the file stays small."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return round(value, DIGITS) if isinstance(value, float) else value


def print_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    print(f"\n{title}\n\n| source | {' | '.join(headings)} |\n|---|{'---:|' * len(headings)}")
    for source, *cells in rows:
        print(f"| {source} | {' | '.join('-' if cell is None else str(cell) for cell in cells)} |")


def print_space(figures: Figures) -> None:
    lines = [(source, line) for source, found in figures.items() for line in found["thresholds"]]
    headings = ("t", "windows", "kept", "removed %", "ceiling %", "median d", "p99", "max", "mean d/delta")
    rows = []
    for source, line in lines:
        cells = [f"{line['kept']:.3f}", *(f"{100 * line[name]:.2f}" for name in ("removed", "ceiling"))]
        distances = line["distances"] or {}
        cells += [f"{value:.4f}" for name, value in distances.items() if name != "count"] or ["-"] * 4
        rows.append([source, line["t"], line["windows"], *cells])
    print_table("Windows (tables 3, 6, 11)", headings, rows)
    headings = ("t", "log2 R_2delta", "entropy", "log2 R_delta", "log2 S", "queries", "R@10", "score drop", "delta_hat")
    rows = []
    for source, line in lines:
        search, rate = line["search"], line["rate"]
        recall = search["recall_at_10"]
        cells = [*(f"{bits:.2f}" for bits in rate.values()), str(search["queries"])]
        cells.append("-" if recall is None else f"{recall:.4f}")
        rows.append([source, line["t"], *cells, *(f"{search[n]:.4f}" for n in ("largest_score_drop", "delta_hat"))])
    print_table("Rate in bits a window, and search (tables 23, 3)", headings, rows)


def print_ranks(figures: Figures) -> None:
    margins = [
        [source, line["k"], line["queries"], *(f"{line[name]:.4f}" for name in ("median", "p90", "p99", "max"))]
        for source, found in figures.items()
        for line in found["margins"]
    ]
    print_table("Rank margins (table 25)", ("k", "queries", "median", "p90", "p99", "max"), margins)
    headings = ("t", "relation", "radius", "removed %", "l2 hat", "linf hat", "movement", "unchanged %, by k")
    rows = []
    for source, found in figures.items():
        for line in found["thresholds"]:
            for near in line["relations"]:
                unchanged = ", ".join(f"{k}: {100 * share:.1f}" for k, share in near["unchanged"].items())
                cells = [f"{near[name]:.4f}" for name in ("l2_hat", "linf_hat", "mean_movement")]
                radius, removed = f"{near['radius']:.4f}", f"{100 * near['removed']:.2f}"
                rows.append([source, line["t"], near["name"], radius, removed, *cells, unchanged])
    print_table("Top k provably unchanged (table 24)", headings, rows)


def main() -> None:
    figures = measured_or_stored(__doc__, "embedding_space", measure)
    print(figures["setup"])
    print_space(figures["sources"])
    print_ranks(figures["sources"])
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
