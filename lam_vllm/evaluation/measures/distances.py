"""How far the windows that were dropped lie from those that stand for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lam_vllm.errors import OptionError


@dataclass(frozen=True, slots=True)
class AttainedDistances:
    """Of `count` substitutions (the paper, tables 3 and 11); `max` is delta_hat, `mean_over_delta` a share of delta."""

    count: int
    median: float
    p99: float
    max: float
    mean_over_delta: float


def attained_distances(distances: NDArray[np.float64], delta: float) -> AttainedDistances | None:
    """The figures of (M,) distances attained under the bound delta; None where nothing was dropped.

    Quantiles between two values are interpolated.

    Raises:
        OptionError: delta is not above 0.
        ValueError: a distance is over delta, so that the bound did not hold.
    """
    if not delta > 0:
        raise OptionError("delta", delta, "a number above 0")
    if not distances.size:
        return None
    if not distances.max() <= delta:
        raise ValueError(f"distances: {distances.max()} is not allowed; allowed: at most delta = {delta}")
    median, p99 = np.quantile(distances, [0.5, 0.99])
    return AttainedDistances(
        distances.size, float(median), float(p99), float(distances.max()), float(distances.mean()) / delta
    )
