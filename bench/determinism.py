"""Whether L1 deletes the same windows however they are encoded, and how much SemDeDup depends on its seed.

Six recorded runs, one or two of each source, are embedded by the canonical encoder (each text alone, unpadded, one
thread) and by the same model as a fast path would run it: batches of 1 to 32, padded, on one and two threads, windows
arriving one observation at a time, all at once or in random chunks, and in a process of its own with the vector units
of an older CPU. For each the deletions at t = 0.99 and 0.95 are named by a digest. `moved` is the largest l2 distance
of an embedding from the canonical one: where the nearest pair is more than twice as far from delta, the deletions could
not have been others. The canonical deletions of the whole corpus stand beside it. The whole profile `paper` is compared
over the same arrivals, and SemDeDup over five seeds, within runs and over all of them together. Prints tables and one
line of JSON, which results/determinism.json keeps.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from math import isqrt
from typing import Any, get_args

import numpy as np
from corpus_data import ROOT, corpus_runs, machine, served_tokens
from determinism_encodings import RUNS, THRESHOLDS, deleted, encodings, windowed_runs
from remembered import RememberedEncoder

from lam_vllm import Compactor, CompactorConfig
from lam_vllm.encoders import Encoder, load_encoder
from lam_vllm.evaluation.baselines.semdedup import drops
from lam_vllm.evaluation.baselines.windowed import WindowEmbeddings
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.measures.determinism import Arrival, agreement

RESULTS = ROOT / "bench/results/determinism.json"
SEEDS = range(5)


def by_source(runs: Sequence[Run], encoder: Encoder) -> list[dict[str, Any]]:
    """The canonical deletions of every source: how many pairs another kind of CPU might decide otherwise."""
    windows = WindowEmbeddings(encoder)
    sources = dict.fromkeys(run.source for run in runs)
    return [
        {"source": source, **deleted({run.id: windows.rows(run) for run in runs if run.source == source})}
        for source in sources
    ]


def arrivals(runs: Sequence[Run], encoder: Encoder) -> list[dict[str, Any]]:
    """The profile `paper` over these runs, messages arriving in three ways: a digest of all it emits and decides."""
    count_tokens, made = served_tokens(), []
    for arrival in get_args(Arrival):
        hashed, decisions = hashlib.sha256(), 0
        for run in runs:
            compactor = Compactor(CompactorConfig(profile="paper"), count_tokens, encoder)
            for length in _lengths(len(run.messages), arrival):
                compaction = compactor.compact(run.messages[:length])
            decisions += len(compaction.decisions)
            hashed.update(json.dumps([compaction.messages, compaction.decisions], sort_keys=True).encode())
        made.append({"arrival": arrival, "runs": len(runs), "decisions": decisions, "digest": hashed.hexdigest()[:16]})
    return made


def _lengths(messages: int, arrival: Arrival) -> list[int]:
    if arrival == "whole run":
        return [messages]
    if arrival == "one by one":
        return list(range(1, messages + 1))
    draw = random.Random(0)
    return [*sorted(draw.sample(range(1, messages), min(messages - 1, messages // 3))), messages]


def semdedup(runs: Sequence[Run], encoder: Encoder) -> list[dict[str, Any]]:
    """How far five seeds agree, within runs and globally; as many clusters as the root of the windows in each."""
    windows, made = WindowEmbeddings(encoder), []
    by_run = [windows.rows(run) for run in runs]
    for scope, parts in (("within runs", by_run), ("all runs together", [np.concatenate(by_run)])):
        for threshold_cos in THRESHOLDS:
            sets = [
                {
                    (part, window)
                    for part, rows in enumerate(parts)
                    for window in drops(rows, threshold_cos, isqrt(len(rows)), seed)
                }
                for seed in SEEDS
            ]
            shared, jaccard = agreement(sets)
            made.append(
                {
                    "scope": scope,
                    "t": threshold_cos,
                    "windows": sum(map(len, parts)),
                    "dropped": [len(found) for found in sets],
                    "shared_by_all_seeds": round(shared, 4),
                    "pairwise_jaccard": round(jaccard, 4),
                }
            )
    return made


def print_deletions(names: Sequence[str], lines: Sequence[Mapping[str, Any]]) -> None:
    columns = "".join(f" dropped, t={t:g} | digest | boundary pairs | nearest to delta |" for t in THRESHOLDS)
    print(f"\n| {' | '.join(names)} |{columns}\n|{'---|' * len(names)}{'---:|---|---:|---:|' * 2}")
    for found in lines:
        cells = [f"{found[name]:.1e}" if name == "moved" else found[name] for name in names]
        for threshold_cos in THRESHOLDS:
            at = found[f"t={threshold_cos:g}"]
            cells += [at["dropped"], f"`{at['digest']}`", at["boundary_pairs"], f"{at['nearest_to_delta']:.1e}"]
        print(f"| {' | '.join(map(str, cells))} |")


def print_plain(lines: Sequence[Mapping[str, Any]]) -> None:
    print(f"\n| {' | '.join(lines[0])} |\n|{'---|' * len(lines[0])}")
    for found in lines:
        print(f"| {' | '.join(map(str, found.values()))} |")


def measure() -> dict[str, Any]:
    encoder = load_encoder("minilm")
    remembered, corpus = RememberedEncoder(encoder), corpus_runs()
    made = encodings(windowed_runs(encoder), encoder)
    return {
        "setup": machine(),
        "runs": list(RUNS),
        "encodings": made,
        "digests": {f"t={t:g}": len({found[f"t={t:g}"]["digest"] for found in made}) for t in THRESHOLDS},
        "corpus": by_source(corpus, remembered),
        "arrivals": arrivals(corpus, remembered),
        "semdedup": semdedup(corpus, remembered),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--show", action="store_true", help="measure nothing, print what the file holds")
    asked = parser.parse_args()
    figures = json.loads(RESULTS.read_text(encoding="utf-8")) if asked.show else measure()
    if not asked.show:
        RESULTS.write_text(json.dumps(figures) + "\n", encoding="utf-8")
    print(figures["setup"])
    print_deletions(("cpu", "batch", "threads", "arrival", "moved"), figures["encodings"])
    print_deletions(("source", "windows"), figures["corpus"])
    print_plain(figures["arrivals"])
    print_plain(figures["semdedup"])
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
