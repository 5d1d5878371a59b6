"""The bound between cosine and l2 distance of unit vectors (the paper, section 1)."""

from __future__ import annotations

import math


def delta_of(threshold_cos: float) -> float:
    """l2 radius delta = sqrt(2 - 2t) of unit vectors whose cosine is at least t."""
    return math.sqrt(max(0.0, 2.0 - 2.0 * threshold_cos))
