"""Ruling out by an fp32 product what lies clearly below the threshold: cheap, and wrong about no pair that matters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lam_vllm.types import Candidate, Embedding


def margin(dimension: int) -> float:
    """How far below t a computed cosine may lie while the pair still matters.

    The fp32 error of a dot product of unit vectors is at most D u in any order of summation, u = 2^-24. A distance of
    radius + 1e-5, which is still counted as a boundary pair, is a cosine of at least t - 1.5e-5.
    """
    return max(5e-5, dimension * 2.0**-24 + 2e-5)


def close_ones(rows: Embedding, places: NDArray[np.intp], query: Embedding, threshold_cos: float) -> list[Candidate]:
    """Those of the ascending `places` whose rows are not clearly below the threshold; linear in the places."""
    possible = rows[places] @ query >= threshold_cos - margin(query.shape[0])
    return [Candidate(index) for index in places[possible].tolist()]
