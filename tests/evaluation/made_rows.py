"""Rows by hand, of which a test says only what it is about."""

from __future__ import annotations

from dataclasses import replace

from lam_vllm.evaluation.rows import Row

_NOTHING_LOST = Row(
    method="masking",
    setting="k=3",
    seed=0,
    source="agent",
    run="a",
    resolved=True,
    has_gold=True,
    observations=2,
    observation_tokens=100,
    emitted_tokens=100,
    gold_witnessed=4,
    gold_kept=4,
    gold_relaxed=4,
    distinct_lines=5,
    readable_lines=5,
    cpu_ms=1.0,
)


def row(run: str = "a", **changes: object) -> Row:
    """A resolved run of 100 tokens, all of them emitted, with 4 gold lines, all of them kept; `changes` as asked."""
    return replace(_NOTHING_LOST, run=run, **changes)  # type: ignore[arg-type]
