"""The same windows embedded in many ways, and what L1 deletes by each; see determinism.py, which prints it.

Run by itself with a file's name it writes the embeddings that this process makes, for a process that is started with
other vector units.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import numpy as np
from corpus_data import corpus_runs

from lam_vllm.encoders import Encoder, load_encoder
from lam_vllm.evaluation.baselines.windowed import WindowedRun, WindowEmbeddings
from lam_vllm.evaluation.encoder_variants import packaged_folder
from lam_vllm.evaluation.measures.determinism import Arrival, BatchedModel, decide, digest, embed_groups, groups
from lam_vllm.types import Embedding

RUNS = (
    "mini_gemini3_verified/astropy__astropy-12907",
    "mini_gemini3_verified/django__django-11163",
    "openhands_study/matplotlib__matplotlib-22711",
    "sweagent_demos/trajectories/demonstrations/ctf/pwn/warmup.traj",
    "swesmith_samples/arrow-py__arrow.1d70d009.lm_rewrite__nuzjfyur.l13ggwmx_1",
    "taubench_airline/7/0",
)
THRESHOLDS = (0.99, 0.95)
BATCHES = (1, 2, 8, 32)
OLDER_CPUS = {
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "avx2 in all libraries": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    },
}
Rows = dict[str, Embedding]
Encode = Callable[[Sequence[str]], Embedding]


def windowed_runs(encoder: Encoder) -> list[WindowedRun]:
    windows = WindowEmbeddings(encoder)
    return [windows.windowed(run) for run in corpus_runs() if run.id in RUNS]


def embed_all(runs: Sequence[WindowedRun], arrival: Arrival, encode: Encode) -> Rows:
    """The embeddings of each run's windows, each group of arrivals encoded by itself."""
    rows = {}
    for run in runs:
        pairs = zip(run.windows, run.texts(), strict=True)
        by_observation = groupby(pairs, key=lambda pair: pair[0].observation)
        observations = [[text for _, text in found] for _, found in by_observation]
        rows[run.run.id] = embed_groups(groups(observations, arrival), encode)
    return rows


def alone(encoder: Encoder) -> Encode:
    """Each text by itself, as the rule is defined."""
    return lambda texts: np.array([encoder.encode(text) for text in texts], dtype=np.float32)


def line(how: Mapping[str, object], rows: Rows, canonical: Rows) -> dict[str, Any]:
    """One row of the table: digests and pairs at each t, and how far embeddings lie from the canonical ones."""
    moved = max(float(np.linalg.norm(rows[run].astype(float) - canonical[run], axis=1).max()) for run in rows)
    return {**how, "moved": moved, **deleted(rows)}


def deleted(rows: Rows) -> dict[str, Any]:
    """What L1 deletes of these runs at each t, named by a digest, and how near to delta a pair lies."""
    figures: dict[str, Any] = {"windows": sum(map(len, rows.values()))}
    for threshold_cos in THRESHOLDS:
        decided = {run: decide(embeddings, threshold_cos) for run, embeddings in rows.items()}
        figures[f"t={threshold_cos:g}"] = {
            "dropped": sum(len(found.deletions) for found in decided.values()),
            "digest": digest({run: found.deletions for run, found in decided.items()}),
            "boundary_pairs": sum(found.boundary_pairs for found in decided.values()),
            "nearest_to_delta": min(found.nearest_to_delta for found in decided.values()),
        }
    return figures


def encodings(runs: Sequence[WindowedRun], encoder: Encoder) -> list[dict[str, Any]]:
    """The canonical line and one for every other way to encode."""
    canonical = embed_all(runs, "one by one", alone(encoder))
    made = [line(_how("default", "canonical", 1, "one by one"), canonical, canonical)]
    model = BatchedModel(packaged_folder())
    ways: list[tuple[int, int, Arrival]] = [(batch, 1, "whole run") for batch in BATCHES]
    ways += [(batch, 2, "whole run") for batch in (BATCHES[0], BATCHES[-1])]
    ways += [(BATCHES[-1], 1, arrival) for arrival in get_args(Arrival) if arrival != "whole run"]
    for batch, threads, arrival in ways:
        rows = embed_all(runs, arrival, lambda texts, b=batch, n=threads: model.encode(texts, b, n))  # type: ignore[misc]
        made.append(line(_how("default", str(batch), threads, arrival), rows, canonical))
        print(f"batch {batch}, {threads} threads, {arrival}", file=sys.stderr)
    for name, variables in OLDER_CPUS.items():
        for how, rows in _elsewhere(variables).items():
            made.append(line(_how(name, how, 1, "one by one" if how == "canonical" else "whole run"), rows, canonical))
        print(name, file=sys.stderr)
    return made


def _how(cpu: str, batch: str, threads: int, arrival: str) -> dict[str, object]:
    return {"cpu": cpu, "batch": batch, "threads": threads, "arrival": arrival}


def _elsewhere(variables: Mapping[str, str]) -> dict[str, Rows]:
    """Canonical embeddings and those of batches of 32, made by another process with these variables set."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "rows.npz"
        subprocess.run([sys.executable, __file__, file], env={**os.environ, **variables}, check=True)
        with np.load(file) as stored:
            keys = [key.split("\t") for key in stored]
            return {
                batch: {run: stored[f"{batch}\t{run}"] for other, run in keys if other == batch}
                for batch in ("canonical", "32")
            }


def worker(file: Path) -> None:
    """What the other process does: both sets of embeddings into `file`."""
    encoder, model = load_encoder("minilm"), BatchedModel(packaged_folder())
    runs = windowed_runs(encoder)
    made = {
        "canonical": embed_all(runs, "one by one", alone(encoder)),
        "32": embed_all(runs, "whole run", lambda texts: model.encode(texts, 32, 1)),
    }
    named = {f"{batch}\t{run}": rows for batch, by_run in made.items() for run, rows in by_run.items()}
    np.savez(file, allow_pickle=False, **named)


if __name__ == "__main__":
    worker(Path(sys.argv[1]))
