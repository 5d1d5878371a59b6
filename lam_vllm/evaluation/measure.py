"""Methods by name, over runs, row by row: what an evaluation is made of, kept as it is made."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import lam_vllm
from lam_vllm.evaluation.baselines import Family, Inputs, grid_of, make_family
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.method import Method
from lam_vllm.evaluation.rows import Row, RowStore
from lam_vllm.evaluation.score import Clock, TokenCounter, score

NEAR_FAMILIES = ("guarded", "paper", "l1", "components", "semdedup", "semdedup_global")
"""Families whose one setting is t."""
USUAL = {"masking": 5.0, "minhash": 0.8, "llmlingua2_xlm": 0.8, "llmlingua2_bert": 0.8, "summaries": 0.1}
"""One setting of every other family: that of the paper's table 2, where it is one of the table's methods."""
TEXTS_COUNTED_ONCE = 4_096
"""Most methods and settings leave most texts of a run as they are."""
_OF_ALL_RUNS = "semdedup_global"
_NOT_IN_ROWS = ("serving", "commands", "performance_model", "cli.py")
_IN_ROWS = ("baselines", "readable.py", "evidence.py", "score.py", "method.py")


def families(names: Iterable[str], inputs: Inputs, *, sweep: bool) -> list[Family]:
    """The families of these names, at the settings of the evaluation or at one; empty with a reason where none runs.

    One setting means the encoder's t for those that have t; `guarded` is measured at t = 1 too, where shared lines
    alone choose windows, so that the difference is what the encoder adds. A sweep takes the grid and these.

    Raises:
        OptionError: there is no such family.
    """
    return [make_family(name, inputs, _settings(name, inputs, sweep=sweep)) for name in dict.fromkeys(names)]


def _settings(name: str, inputs: Inputs, *, sweep: bool) -> Sequence[float]:
    usual = {USUAL[name]} if name in USUAL else set()
    if name in NEAR_FAMILIES and inputs.encoder:
        usual = {inputs.encoder.threshold_cos} | ({1.0} if name == "guarded" else set())
    return sorted({*grid_of(name), *usual} if sweep or not usual else usual)


def measure(
    methods: Sequence[Method],
    runs: Sequence[Run],
    count_tokens: TokenCounter,
    store: RowStore[Row],
    cpu_seconds: Clock,
) -> Iterator[Row]:
    """A row for each run under each method, run by run: out of the store, or made and put there.

    Raises:
        Whatever a method raises; what was finished before is in the store.
    """
    everything = [store.stamp(run) for run in runs]
    count_once = lru_cache(TEXTS_COUNTED_ONCE)(count_tokens)  # apart from what methods count, whose time is measured
    for run, own_stamp in zip(runs, everything, strict=True):
        for method in methods:
            stamp = store.stamp(run, *everything) if method.name == _OF_ALL_RUNS else own_stamp
            row = store.get(method, stamp)
            if row is None:
                row = score(method, run, count_once, cpu_seconds)
                store.add(row, stamp)
            yield row


def code_digest() -> str:
    """Names the source that decides a row, so that rows of different code are told apart."""
    root = Path(lam_vllm.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        first, *rest = path.relative_to(root).parts
        if first not in _NOT_IN_ROWS and (first != "evaluation" or rest[0] in _IN_ROWS):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
