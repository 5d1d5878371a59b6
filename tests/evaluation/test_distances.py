"""Figures of attained distances, small enough to check by eye."""

from __future__ import annotations

import numpy as np
import pytest

from lam_vllm.errors import OptionError
from lam_vllm.evaluation.measures.distances import AttainedDistances, attained_distances


def test_the_figures_of_five_distances() -> None:
    found = attained_distances(np.array([0.5, 0.0, 0.125, 0.25, 0.375]), delta=0.5)
    assert found == AttainedDistances(count=5, median=0.25, p99=0.495, max=0.5, mean_over_delta=0.5)


def test_nothing_dropped_has_no_figures_rather_than_zeros() -> None:
    assert attained_distances(np.empty(0), delta=0.5) is None


def test_a_distance_over_the_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="at most delta"):
        attained_distances(np.array([0.1, np.nextafter(0.5, 1)]), delta=0.5)


@pytest.mark.parametrize("delta", [0.0, -1.0, float("nan")])
def test_a_delta_that_is_no_bound_is_refused(delta: float) -> None:
    with pytest.raises(OptionError, match="delta"):
        attained_distances(np.array([0.0]), delta)
