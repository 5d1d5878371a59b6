"""The figures of one run under one profile, and the file that keeps a row for each."""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from corpus_data import ROOT

RESULTS = Path(__file__).parent / "results" / "removal.json"
_BESIDE_THE_CORE = ("serving", "commands", "evaluation")


@dataclass(frozen=True, slots=True)
class Row:
    """Counts of one run; rates come from sums of them. `code` names the core's source that made the row.

    `observation_tokens` and `emitted_tokens` are whole texts counted before and after. `longer` counts tool results
    that became longer. `reconstructed` is None where the profile promises no round trip. Times are CPU time;
    `encode_ms` is what encoding takes when nothing is remembered, and part of `cpu_ms`.
    """

    profile: str
    source: str
    run: str
    code: str
    observations: int
    observation_tokens: int
    emitted_tokens: int
    longer: int
    stubs: int
    stub_tokens: int
    l0_tokens: int
    l1_tokens: int
    gold_witnessed: int
    gold_kept: int
    gold_relaxed: int
    distinct_lines: int
    readable_lines: int
    long_line_words: int
    readable_words: int
    delta_hat: float
    boundary_pairs: int
    reconstructed: bool | None
    prefixes_checked: int
    windows: int
    encoder_calls: int
    cpu_ms: float
    encode_ms: float


Rows = dict[tuple[str, str], Row]
"""By profile and run."""


def stored_setup() -> str:
    """What the results file was measured with; empty where there is no file yet."""
    return str(json.loads(RESULTS.read_text(encoding="utf-8"))["setup"]) if RESULTS.exists() else ""


def read_rows(setup: str) -> Rows:
    """The rows of the results file; none where it was measured with another setup, whose times are no comparison."""
    if not RESULTS.exists() or stored_setup() != setup:
        return {}
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))
    rows = (Row(**dict(zip(stored["columns"], row, strict=True))) for row in stored["rows"])
    return {(row.profile, row.run): row for row in rows}


def write_rows(rows: Rows, setup: str) -> None:
    """Replaces the results file as a whole, so that an interruption leaves one that can be read."""
    ordered = sorted(rows.values(), key=lambda row: (row.profile, row.source, row.run))
    lines = ",\n".join(json.dumps(astuple(row), ensure_ascii=False) for row in ordered)
    columns = json.dumps([field.name for field in fields(Row)])
    RESULTS.parent.mkdir(exist_ok=True)
    fresh = RESULTS.with_suffix(".part")
    fresh.write_text(
        f'{{"setup": {json.dumps(setup)},\n"columns": {columns},\n"rows": [\n{lines}\n]}}\n', encoding="utf-8"
    )
    fresh.replace(RESULTS)


def code_digest() -> str:
    """Names the source of the core, so that rows of different code are told apart."""
    core = ROOT / "lam_vllm"
    digest = hashlib.blake2b(digest_size=4)
    for path in sorted(core.rglob("*.py")):
        if path.relative_to(core).parts[0] not in _BESIDE_THE_CORE:
            digest.update(path.read_bytes())
    return digest.hexdigest()
