"""What baselines.py and ecr.py share: methods on the recorded runs, their rows kept in a file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from corpus_data import machine, served_tokens
from remembered import RememberedEncoder

from lam_vllm.encoders import load_encoder
from lam_vllm.evaluation.baselines import Family, Inputs, WindowEmbeddings
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.measure import code_digest, measure
from lam_vllm.evaluation.rows import Row, RowStore, digest

SETUP = f"{machine()}; tokens of SmolLM2; all-MiniLM-L6-v2"


def method_inputs(runs: Sequence[Run], summary_url: str | None = None) -> Inputs:
    """What methods over these runs are made from."""
    encoder = RememberedEncoder(load_encoder("minilm"))
    windows = WindowEmbeddings(encoder, encoder.cpu_seconds)
    return Inputs(served_tokens(), runs, encoder, windows, summary_url=summary_url)


def measure_all(found: Sequence[Family], inputs: Inputs, file: Path) -> None:
    """Puts a row for every run under every method into `file`, those aside that this code has made."""
    assert inputs.windows, "method_inputs makes them"
    methods = [method for family in found for method in family.methods]
    store = RowStore(file, digest(code_digest(), SETUP), Row)
    total = len(methods) * len(inputs.runs)
    rows = measure(methods, inputs.runs, inputs.count_tokens, store, inputs.windows.cpu_seconds)
    for number, row in enumerate(rows, start=1):
        print(f"\r{number:,} of {total:,} rows: {row.method:24}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
