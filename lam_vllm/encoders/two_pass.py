"""The fast pass of an encoder: which one is quickest here, and how far it may be from canonical.

All is measured on texts that ship with the package: its own files, which are code, JSON, YAML, CSS and prose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import numpy as np

from lam_vllm.encoders.base import BatchEncoder, Pass
from lam_vllm.types import Embedding
from lam_vllm.windows import fixed_windows

SAFETY_FACTOR = 2.0
"""The guard band is this many times the largest difference that was measured."""
MARGIN_COS = 1e-4
"""Added to every band: errors of summing in fp32 are no multiple of what was measured."""
MARGIN_L2 = 1e-6
"""Added to every error of an embedding, for the same reason."""
SAMPLE_WINDOWS = 48
"""Half of them short."""
MEASUREMENT_VERSION = 3
"""Of the sample and of what is measured on it: what was kept under an earlier one is measured anew."""
_FEW_LINES = (1, 3, 10)
_SPEED_WINDOWS = 8
_SAMPLE_KINDS = (".py", ".json", ".js", ".css", ".yaml", ".md")
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class FastPass:
    """The way that was chosen, its guard band (in cosine), tokens per second of every way, and why in words.

    `embedding_error` bounds the l2 distance of an embedding made in this way to the canonical one of the same text, as
    the band does for cosines: measured, with a safety factor, and not proved. Both are 0 for a canonical way.
    """

    way: Pass
    guard_band: float
    tokens_per_second: Mapping[str, float]
    reason: str
    embedding_error: float = 0.0


@dataclass(frozen=True, slots=True)
class Difference:
    """The largest differences between embeddings of a way and canonical ones: of a pair's cosine, of a row in l2."""

    cosine: float
    l2: float


def choose_pass(encoder: BatchEncoder, texts: Sequence[str], least_band: float = 0.0) -> FastPass:
    """The quickest way on these texts, one call at a time, and its band; a canonical way has none.

    `least_band` is one that was measured before, on more texts: see `widened`.
    """
    ways = encoder.passes()
    longest = sorted(texts, key=len)[-max(_SPEED_WINDOWS, *(way.batch for way in ways)) :]
    tokens = sum(len(encoder.token_offsets(text)) for text in longest)
    rates = {label: tokens / seconds for label, seconds in _seconds(encoder, ways, longest).items()}
    way = max(ways, key=lambda each: rates[each.label])
    compared = ", ".join(f"{label} {rate:,.0f}" for label, rate in rates.items())
    reason = f"{way.label}: the quickest here (tokens per second of one thread: {compared})"
    if way.canonical:
        return FastPass(way, 0.0, rates, reason)
    found = measure_difference(encoder, way, texts)
    error = SAFETY_FACTOR * found.l2 + MARGIN_L2
    return widened(FastPass(way, band_around(found.cosine), rates, reason, error), least_band)


def widened(fast: FastPass, least_band: float) -> FastPass:
    """The same with a band of at least `least_band`, and an error that is larger in the same ratio."""
    if fast.way.canonical or fast.guard_band >= least_band:
        return fast
    error = fast.embedding_error * least_band / fast.guard_band
    return replace(fast, guard_band=least_band, embedding_error=error)


def band_around(difference: float) -> float:
    """The guard band that is shipped where the largest difference in cosine that was measured is this."""
    return SAFETY_FACTOR * difference + MARGIN_COS


def measure_band(encoder: BatchEncoder, way: Pass, texts: Sequence[str]) -> float:
    """The largest difference in cosine of `measure_difference`."""
    return measure_difference(encoder, way, texts).cosine


def measure_difference(encoder: BatchEncoder, way: Pass, texts: Sequence[str]) -> Difference:
    """The largest differences, over all pairs of the texts and over all texts, between this way and canonical ones.

    A decision compares an arriving window with a retained one, and either may be of the fast pass.
    """
    canonical = np.stack([encoder.encode(text) for text in texts]).astype(np.float64)
    fast = encode_all(encoder, way, texts).astype(np.float64)
    exact = canonical @ canonical.T
    cosine = max(np.abs(fast @ fast.T - exact).max(), np.abs(fast @ canonical.T - exact).max())
    return Difference(float(cosine), float(np.linalg.norm(fast - canonical, axis=1).max()))


def encode_all(encoder: BatchEncoder, way: Pass, texts: Sequence[str]) -> Embedding:
    """(N, D) embeddings of at least one text, in its batches, longest first, so that little is padding."""
    order = sorted(range(len(texts)), key=lambda place: -len(texts[place]))
    batches = [order[start : start + way.batch] for start in range(0, len(order), way.batch)]
    rows = np.concatenate([encoder.encode_batch([texts[place] for place in batch], way) for batch in batches])
    made = np.empty_like(rows)
    made[order] = rows
    return made


def sample_windows(encoder: BatchEncoder, count: int = SAMPLE_WINDOWS) -> list[str]:
    """Windows of the package's own files, spread evenly over them; of one kind after the other.

    Every second one is cut to its first few lines: short texts move further than long ones, and in a batch they are
    padded.
    """
    root = Path(__file__).parents[1]
    windows = [
        text[window.start : window.end]
        for kind in _SAMPLE_KINDS
        for path in sorted(root.rglob(f"*{kind}"))
        for text in [path.read_text(encoding="utf-8")]
        for window in fixed_windows(text, encoder.token_offsets, encoder.window_tokens)
    ]
    step = max(1, len(windows) // count)
    chosen = windows[::step][:count]
    return [
        text if place % 2 == 0 else "\n".join(text.strip().split("\n")[: _FEW_LINES[place // 2 % len(_FEW_LINES)]])
        for place, text in enumerate(chosen)
    ]


def _seconds(encoder: BatchEncoder, ways: Sequence[Pass], texts: Sequence[str]) -> dict[str, float]:
    """The best of a few rounds for each way. They take turns, so that what else the machine does falls on all alike."""
    best = dict.fromkeys([way.label for way in ways], float("inf"))
    for _ in range(_ROUNDS):
        for way in ways:
            began = perf_counter()
            encode_all(encoder, way, texts)
            best[way.label] = min(best[way.label], perf_counter() - began)
    return best
