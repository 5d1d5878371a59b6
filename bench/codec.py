"""The codec over the corpus: bytes per source and bound, and speed, error and R@10 beside libraries.

Fixed windows of 510 wordpieces under MiniLM; of each run the windows that the greedy rule retains at t = 0.95, in
streams of at most 256 rows, every header counted. One bound for all runs: a share of the largest |x| of the corpus, or
of its value range. That no value misses its bound is checked on every stream, in float64. Beside these bytes stands
what the whole indexes of the runs take where they are kept: for every window its place in the text and the distance
that its certificate rests on, for every row its error. Speeds are CPU time of one thread, median of five. Embeddings
come from the file of remembered.py. Prints tables, and the same figures as one line of JSON, which
results/codec.json keeps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from codec_index import kept_indexes
from codec_tables import tables
from codec_ways import Way, ways
from corpus_data import corpus_runs, machine
from numpy.typing import NDArray
from remembered import RememberedEncoder
from stored import measured_or_stored
from threadpoolctl import threadpool_limits

from lam_vllm.bound import delta_of
from lam_vllm.codec import decode, encode
from lam_vllm.codec.bounded import Values
from lam_vllm.codec.wire import Mode
from lam_vllm.encoders import Encoder, load_encoder
from lam_vllm.evaluation.baselines.windowed import WindowEmbeddings
from lam_vllm.evaluation.measures.packing import greedy, l2_matrix

THRESHOLD_COS = 0.95
SEGMENT_ROWS = 256
MAP_BYTES = 4
"""What a dropped window costs in the map that says which one stands for it."""
SHARES = {"3pct": 0.03, "1pct": 0.01, "03pct": 0.003}
MODES: tuple[Mode, ...] = ("fixed", "dense")
QUERIES, TOP = 500, 10
REPEATS = 5
Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunRows:
    """The retained rows of one run, and how many windows it has."""

    retained: Values
    windows: int


def run_rows(source: str, limit: int | None, encoder: Encoder) -> list[RunRows]:
    windows = WindowEmbeddings(encoder)
    found = []
    for run in corpus_runs([source], limit):
        rows = windows.rows(run)
        if len(rows):
            found.append(RunRows(rows[greedy(l2_matrix(rows), delta_of(THRESHOLD_COS)).retained], len(rows)))
    return found


def segments(runs: Sequence[RunRows]) -> list[Values]:
    starts = [(run.retained, start) for run in runs for start in range(0, len(run.retained), SEGMENT_ROWS)]
    return [rows[start : start + SEGMENT_ROWS] for rows, start in starts]


def sizes(runs: Sequence[RunRows], eps: float) -> Figures:
    """Of each mode the fp32 bytes over the codec's; `composite` counts all windows against the retained and the map."""
    figures: Figures = {"eps": eps}
    retained, windows = sum(len(run.retained) for run in runs), sum(run.windows for run in runs)
    row_bytes = 4 * runs[0].retained.shape[1]
    for mode in MODES:
        streams = [(rows, encode(rows, eps, mode)) for rows in segments(runs)]
        used = sum(len(stream) for _, stream in streams)
        figures[mode] = {
            "ratio": retained * row_bytes / used,
            "composite": windows * row_bytes / (used + MAP_BYTES * (windows - retained)),
            "violations": sum(violations(rows, decode(stream), eps) for rows, stream in streams),
        }
    return figures


def violations(rows: Values, decoded: Values, eps: float) -> int:
    return int(np.count_nonzero(~(np.abs(rows.astype(np.float64) - decoded.astype(np.float64)) <= eps)))


def best_ten(index: Values, queries: Values) -> NDArray[np.intp]:
    """(Q, 10) the rows of the index that score highest, each renormalised; equal scores by their place."""
    wide = index.astype(np.float64)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    scores = queries.astype(np.float64) @ (wide / norms).T
    return np.argsort(-scores.round(12), axis=1, kind="stable")[:, :TOP]


def recall_at_10(true: NDArray[np.intp], found: NDArray[np.intp]) -> float:
    shared = [len(set(one) & set(other)) for one, other in zip(true.tolist(), found.tolist(), strict=True)]
    return sum(shared) / (TOP * len(shared))


def megabytes_a_second(work: Callable[[], object], size: int) -> float:
    seconds = []
    for _ in range(REPEATS + 1):
        began = process_time()
        work()
        seconds.append(process_time() - began)
    return size / 1e6 / median(seconds[1:])  # the first touches memory and caches


def measured_way(way: Way, rows: Values, held: NDArray[np.bool_], per_run: Sequence[Values], eps: float) -> Figures:
    """Of one matrix of all retained rows: ratio (and of a stream each run), speed, largest error over eps, R@10."""
    shape = (len(rows), rows.shape[1])
    data = way.write(rows, eps)
    decoded = way.read(data, shape, eps)
    error = float(np.abs(rows.astype(np.float64) - decoded.astype(np.float64)).max())
    return {
        "ratio": rows.nbytes / len(data),
        "ratio_per_run": rows.nbytes / sum(len(way.write(segment, eps)) for segment in per_run),
        "encode_mb_per_second": megabytes_a_second(lambda: way.write(rows, eps), rows.nbytes),
        "decode_mb_per_second": megabytes_a_second(lambda: way.read(data, shape, eps), rows.nbytes),
        "error_over_eps": error / eps if way.bounded else None,
        "recall_at_10": recall_at_10(best_ten(rows[~held], rows[held]), best_ten(decoded[~held], rows[held])),
        "equal_rows_stay_equal": equal_rows_stay_equal(rows, decoded),
    }


def equal_rows_stay_equal(rows: Values, decoded: Values) -> bool:
    first: dict[bytes, int] = {}
    same = [first.setdefault(row.tobytes(), place) for place, row in enumerate(rows)]
    return bool((decoded[same].view(np.uint32) == decoded.view(np.uint32)).all())


def beside_libraries(runs: Sequence[RunRows], max_abs: float) -> list[Figures]:
    rows = np.concatenate([run.retained for run in runs])
    held = np.zeros(len(rows), np.bool_)
    held[np.random.default_rng(0).choice(len(rows), min(QUERIES, len(rows) // 2), replace=False)] = True
    per_run, lines = segments(runs), []
    for name, share in SHARES.items():
        for way in ways():
            if way.bounded or share == SHARES["1pct"]:
                figures = measured_way(way, rows, held, per_run, share * max_abs)
                lines.append({"way": way.name, "bound": name if way.bounded else None, **figures})
    return lines


def figures_of(by_source: Mapping[str, Sequence[RunRows]]) -> Figures:
    """All figures but the machine's name; source `all` is the last, where there is more than one."""
    runs = [run for found in by_source.values() for run in found]
    least, most = min(float(run.retained.min()) for run in runs), max(float(run.retained.max()) for run in runs)
    scales = {"max_abs": max(-least, most), "value_range": most - least}
    bounds = {f"{name}_{scale}": share * scales[scale] for scale in scales for name, share in SHARES.items()}
    whole = {"all": runs} if len(by_source) > 1 else {}
    sources = {source: source_figures(found, bounds) for source, found in {**by_source, **whole}.items()}
    with threadpool_limits(1):
        figures: Figures = {**scales, "sources": sources, "ways": beside_libraries(runs, scales["max_abs"])}
    return {**figures, **headline(figures)}


def source_figures(runs: Sequence[RunRows], bounds: Mapping[str, float]) -> Figures:
    return {
        "runs": len(runs),
        "windows": sum(run.windows for run in runs),
        "retained": sum(len(run.retained) for run in runs),
        "bounds": {name: sizes(runs, eps) for name, eps in bounds.items()},
    }


def measure(sources: Sequence[str], limit: int | None) -> Figures:
    encoder = RememberedEncoder(load_encoder("minilm"))
    by_source = {source: run_rows(source, limit, encoder) for source in sources}
    kept = kept_indexes(corpus_runs(sources, limit), encoder)
    index = {"kept": kept, "composite_ratio_index_1pct": kept["composite_kept"]}
    return {"setup": machine(), **figures_of(by_source), **index}


def headline(figures: Figures) -> Figures:
    whole = list(figures["sources"].values())[-1]["bounds"]
    ways = {(line["way"], line["bound"]): line for line in figures["ways"]}
    fixed, dense = ways["fixed", "1pct"], ways["dense", "1pct"]
    return {
        "fixed_ratio_1pct": whole["1pct_max_abs"]["fixed"]["ratio"],
        "codec_ratio_1pct": whole["1pct_max_abs"]["dense"]["ratio"],
        "composite_ratio_1pct": whole["1pct_max_abs"]["dense"]["composite"],
        "fixed_ratio_1pct_range": whole["1pct_value_range"]["fixed"]["ratio"],
        "codec_ratio_1pct_range": whole["1pct_value_range"]["dense"]["ratio"],
        "bound_violations": sum(
            bound[mode]["violations"]
            for source in figures["sources"].values()
            for bound in source["bounds"].values()
            for mode in MODES
        ),
        "recall_at_10_1pct": dense["recall_at_10"],
        "recall_at_10_03pct": ways["dense", "03pct"]["recall_at_10"],
        "fixed_encode_mb_per_second": fixed["encode_mb_per_second"],
        "fixed_decode_mb_per_second": fixed["decode_mb_per_second"],
        "dense_encode_mb_per_second": dense["encode_mb_per_second"],
        "dense_decode_mb_per_second": dense["decode_mb_per_second"],
    }


def main() -> None:
    figures = measured_or_stored(__doc__, "codec", measure)
    print(figures["setup"])
    print(f"\n{tables(figures)}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
