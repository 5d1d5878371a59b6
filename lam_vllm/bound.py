"""The bound between cosine and l2 distance of unit vectors, and the ceiling that follows (the paper, section 1)."""

from __future__ import annotations

import math


def delta_of(threshold_cos: float) -> float:
    """l2 radius delta = sqrt(2 - 2t) of unit vectors whose cosine is at least t."""
    return math.sqrt(max(0.0, 2.0 - 2.0 * threshold_cos))


def cos_of(radius_l2: float) -> float:
    """Cosine t of unit vectors at l2 distance delta; the inverse of `delta_of`."""
    return 1.0 - radius_l2 * radius_l2 / 2.0


def packing_cos(threshold_cos: float) -> float:
    """Cosine t' = 4t - 3 whose radius is twice that of t: greedy at it is a packing, hence a ceiling on removal."""
    return 4.0 * threshold_cos - 3.0
