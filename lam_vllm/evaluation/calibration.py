"""The t and the guard band that recorded runs speak for, under one encoder; see `commands.calibrate`.

t is judged by L1 alone, the only part of any profile that hides a line: `guarded` shows every line that is new, and L0
leaves the first of equal lines. The proposal is the lowest t of a grid, provided that it and every higher one keep both
floors, over all runs together: removal is not monotone in t, so that a low t may keep more than a higher one by luck.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from heapq import nsmallest
from itertools import takewhile

from lam_vllm.encoders.base import BatchEncoder, Pass
from lam_vllm.encoders.two_pass import band_around, measure_band
from lam_vllm.errors import OptionError
from lam_vllm.evaluation.baselines import Inputs, make_family
from lam_vllm.evaluation.measures.gold import gold_rates, line_retention, word_retention
from lam_vllm.evaluation.method import Method
from lam_vllm.evaluation.rows import Row, by

THRESHOLDS_COS = (0.99, 0.98, 0.97, 0.96, 0.95, 0.94, 0.92, 0.90)
LINE_FLOOR = 0.975
"""Share of the distinct lines that stands for the gold floor where no run has a patch.

Of the recorded runs 97 (mini-swe-agent) show 1,228 lines of their gold patches. L1 keeps 99.9% of those down to
t = 0.94, where it leaves 97.6% of the distinct lines, and no longer at 0.92, where it leaves 96.5%. All lines cannot be
asked for: of those of all 135 recorded runs it loses 1.6% at t = 0.99 already.
"""
GOLD_FLOOR = 0.999
"""The floor at which the paper's own t = 0.95 binds (its table 17)."""
SAMPLE_WINDOWS = 128
PROFILES = ("l1", "paper", "guarded")
"""What is measured at every t: the first layer of `paper` alone, all of it, and `guarded`."""


@dataclass(frozen=True, slots=True)
class Floors:
    """What L1 has to keep: shares, in 0..1, of the distinct lines, and of the gold lines where some run shows one."""

    lines: float = LINE_FLOOR
    gold: float = GOLD_FLOOR

    def kept_by(self, rows: Sequence[Row]) -> bool:
        """Whether these rows keep both. Where every line is too long to be judged as one, its words are."""
        lines, gold = line_retention(rows), gold_rates(rows).strict_micro
        shown = lines if isinstance(lines, float) else word_retention(rows)
        return isinstance(shown, float) and shown >= self.lines and not (isinstance(gold, float) and gold < self.gold)


@dataclass(frozen=True, slots=True)
class Band:
    """How far one way of encoding is from canonical: the largest difference in cosine that was measured."""

    way: Pass
    largest_difference: float


def grid(thresholds_cos: Iterable[float]) -> tuple[float, ...]:
    """The different thresholds, descending, with as many digits as the name of a setting has.

    Raises:
        OptionError: one is not above 0 and at most 1.
    """
    for threshold_cos in thresholds_cos:
        if not 0 < threshold_cos <= 1:
            raise OptionError("threshold", threshold_cos, "a number above 0 and at most 1")
    return tuple(sorted({float(f"{threshold_cos:g}") for threshold_cos in thresholds_cos}, reverse=True))


def methods_at(thresholds_cos: Sequence[float], inputs: Inputs) -> list[Method]:
    """Each of `PROFILES` at each t."""
    return [method for name in PROFILES for method in make_family(name, inputs, thresholds_cos).methods]


def propose_threshold(rows: Iterable[Row], thresholds_cos: Sequence[float], floors: Floors) -> float | None:
    """The lowest of the descending thresholds such that it and all above it keep the floors; None: the first fails.

    `rows` are those of L1 at these thresholds, among others or not.
    """
    groups = by(rows, "method", "setting")
    good = list(takewhile(lambda t: floors.kept_by(groups["l1", setting_of(t)]), thresholds_cos))
    return good[-1] if good else None


def sample_texts(windows: Iterable[str], count: int) -> list[str]:
    """The `count` different texts with the smallest SHA-256, in that order, in whatever order they come."""
    return nsmallest(count, set(windows), key=lambda text: sha256(text.encode(errors="surrogatepass")).digest())


def measure_bands(encoder: BatchEncoder, texts: Sequence[str]) -> list[Band]:
    """What `two_pass.measure_band` says of these texts, at least one, for every way that is not canonical by itself."""
    return [Band(way, measure_band(encoder, way, texts)) for way in encoder.passes() if not way.canonical]


def propose_band(bands: Iterable[Band]) -> float:
    """A guard band for whichever way is chosen, a difference of cosines, as `two_pass` makes one; 0 without any way."""
    widest = max((band.largest_difference for band in bands), default=None)
    return 0.0 if widest is None else band_around(widest)


def setting_of(threshold_cos: float) -> str:
    """How rows name this t."""
    return f"t={threshold_cos:g}"
