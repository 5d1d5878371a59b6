"""The row of one run under one profile: what every method's row has, and what only a compactor can tell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lam_vllm.evaluation.rows import Row

RESULTS = Path(__file__).parent / "results" / "removal.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalRow(Row):
    """Counts of one run under one profile, which is its `method`.

    `longer` counts tool results that became longer. `reconstructed` is None where the profile promises no round trip.
    `encode_ms` is CPU time of encoding with nothing remembered, and part of `cpu_ms`. `setup` names the machine and the
    models.
    """

    setup: str
    longer: int
    stubs: int
    stub_tokens: int
    l0_tokens: int
    l1_tokens: int
    delta_hat: float
    boundary_pairs: int
    reconstructed: bool | None
    prefixes_checked: int
    windows: int
    encoder_calls: int
    encode_ms: float
