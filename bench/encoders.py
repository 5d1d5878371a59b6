"""What the paper's layers remove at t = 0.95 under three encoders, and the t at which each removes as much as MiniLM.

The encoders are the packaged MiniLM with its own mean pooling, the same weights with CLS pooling, and a static model
distilled from it. All three see the same windows and count the same wordpieces; net charges 14 tokens for each dropped
window. Embeddings are kept in the file of remembered.py; encoding all windows once more takes about 15 minutes of CPU
time. Prints a table, and the same figures as one line of JSON, which results/encoders.json keeps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from corpus_data import SOURCES, corpus_runs, machine, observed
from remembered import RememberedEncoder
from stored import measured_or_stored

from lam_vllm.encoders import Encoder, load_encoder
from lam_vllm.evaluation.baselines.windowed import WindowEmbeddings
from lam_vllm.evaluation.encoder_variants import StaticEncoder, packaged_folder, with_cls_pooling
from lam_vllm.evaluation.measures.packing import Distances, l2_matrix
from lam_vllm.evaluation.study.encoder_table import (
    LayerTokens,
    WindowTokens,
    layer_tokens,
    matching_threshold,
)

THRESHOLD_COS = 0.95


@dataclass(frozen=True, slots=True)
class Embedded:
    """One run under one encoder: its texts, the tokens of their windows, and how far these lie apart."""

    texts: list[str]
    tokens: WindowTokens
    distances: Distances


def encoders() -> Iterator[tuple[str, Encoder]]:
    """Each encoder in turn with its name in the table; the first is the one that others are compared with."""
    minilm = load_encoder("minilm")
    yield "MiniLM, mean", RememberedEncoder(minilm)
    with TemporaryDirectory() as folder:
        cls_folder = with_cls_pooling(packaged_folder(), Path(folder) / "minilm-cls")
        yield "MiniLM, CLS", RememberedEncoder(load_encoder(str(cls_folder)))
    yield "static, from MiniLM", StaticEncoder(minilm, packaged_folder())


def embedded(source: str, limit: int | None, encoder: Encoder) -> list[Embedded]:
    windows, made = WindowEmbeddings(encoder), []
    for run in corpus_runs([source], limit):
        tokens = [len(encoder.token_offsets(text)) for text in windows.windowed(run).texts()]
        made.append(Embedded(observed(run.messages), np.array(tokens, dtype=np.int64), l2_matrix(windows.rows(run))))
    return made


def removed(runs: Sequence[Embedded], encoder: Encoder, threshold_cos: float) -> LayerTokens:
    """What both layers remove of these runs."""
    return sum((layer_tokens(run.texts, encoder, threshold_cos) for run in runs), LayerTokens())


def line(source: str, name: str, encoder: Encoder, runs: Sequence[Embedded], wanted_l1: int | None) -> dict[str, Any]:
    """One row; `wanted_l1` is what MiniLM's L1 removes of the same runs, None for MiniLM itself."""
    total = removed(runs, encoder, THRESHOLD_COS)
    pairs = [(run.tokens, run.distances) for run in runs]
    same = THRESHOLD_COS if wanted_l1 is None else matching_threshold(pairs, wanted_l1)
    matched = removed(runs, encoder, same)
    return {
        "source": source,
        "encoder": name,
        "dimension": encoder.dimension,
        "tokens": total.observation_tokens,
        "windows": total.windows,
        "dropped": total.dropped,
        "l1_tokens": total.l1_tokens,
        "delta_hat": round(total.delta_hat, 4),
        **{f"{key}_pct": round(100 * share, 2) for key, share in total.shares().items()},
        "matching_t": round(same, 4),
        "matched_l1_gross_pct": round(100 * matched.shares()["l1_gross"], 2),
        "matched_l1_l0_net_pct": round(100 * matched.shares()["l1_l0_net"], 2),
    }


def lines(sources: Sequence[str], limit: int | None) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for name, encoder in encoders():
        by_source = {source: embedded(source, limit, encoder) for source in sources}
        if len(sources) > 1:
            by_source["all"] = [run for runs in by_source.values() for run in runs]
        wanted = {row["source"]: row["l1_tokens"] for row in made if row["encoder"] == "MiniLM, mean"}
        made += [line(source, name, encoder, runs, wanted.get(source)) for source, runs in by_source.items()]
    return made


COLUMNS = {
    "windows": "windows",
    "dropped": "dropped",
    "L1 gross %": "l1_gross_pct",
    "L1 net %": "l1_net_pct",
    "L1, L0 gross %": "l1_l0_gross_pct",
    "L1, L0 net %": "l1_l0_net_pct",
    "delta_hat": "delta_hat",
    "same L1 at t": "matching_t",
    "L1 there %": "matched_l1_gross_pct",
}


def print_table(made: list[dict[str, Any]]) -> None:
    print(f"| source | encoder | {' | '.join(COLUMNS)} |\n|---|---|{'---:|' * len(COLUMNS)}")
    for row in sorted(made, key=lambda row: [*SOURCES, "all"].index(row["source"])):
        cells = (f"{row[key]:,}" for key in COLUMNS.values())
        print(f"| {row['source']} | {row['encoder']} | {' | '.join(cells)} |")


def measure(sources: Sequence[str], limit: int | None) -> dict[str, Any]:
    return {"setup": machine(), "threshold_cos": THRESHOLD_COS, "limit": limit, "rows": lines(sources, limit)}


def main() -> None:
    figures = measured_or_stored(__doc__, "encoders", measure)
    first = f"; of each source the first {figures['limit']} runs" if figures["limit"] else ""
    print(f"{figures['setup']}{first}")
    print_table(figures["rows"])
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
