"""Connected components of the near relation in place of the greedy rule: what the bound is worth without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lam_vllm.bound import delta_of
from lam_vllm.evaluation.baselines.windowed import WindowEmbeddings
from lam_vllm.evaluation.corpus import Run
from lam_vllm.ops.reference import l2_distances
from lam_vllm.types import Embedding


@dataclass(frozen=True, slots=True)
class Components:
    """For each of N windows the first window of its component, (N,) int64, and the l2 distance to it, (N,) float64.

    `violations` counts members that lie farther than delta from the window that stands for them.
    """

    representative: NDArray[np.int64]
    distance: NDArray[np.float64]
    violations: int

    @property
    def dropped(self) -> int:
        """How many windows another stands for."""
        return int(np.count_nonzero(self.representative != np.arange(len(self.representative))))


class ConnectedComponents:
    """A `Method`: of each component of the run's near relation the first window stays; the others become stubs.

    Near is not transitive, so a chain of near windows may drop one that is far from what stands for it (`groups`).
    """

    name = "components"
    seed = 0
    verbatim = True

    def __init__(self, threshold_cos: float, windows: WindowEmbeddings) -> None:
        self.setting = f"t={threshold_cos:g}"
        self._threshold_cos = threshold_cos
        self._windows = windows

    def shorten(self, run: Run) -> list[Any]:
        """The run's messages with a stub for each window that is not the first of its component."""
        windowed = self._windows.windowed(run)
        first = self.groups(run).representative
        return windowed.without(
            {place: windowed.windows[of] for place, of in enumerate(first.tolist()) if of != place},
        )

    def groups(self, run: Run) -> Components:
        """The components of the run's windows, and by how often they break the bound."""
        return components(self._windows.rows(run), self._threshold_cos)


def components(rows: Embedding, threshold_cos: float) -> Components:
    """The components under l2 distance <= delta of the rows, (N, D) float32 of unit length. Quadratic in N."""
    delta = delta_of(threshold_cos)
    roots = list(range(len(rows)))
    for place in range(1, len(rows)):
        for near in np.flatnonzero(l2_distances(rows[:place], rows[place]) <= delta).tolist():
            one, other = _root(roots, near), _root(roots, place)
            roots[max(one, other)] = min(one, other)
    first = np.array([_root(roots, place) for place in range(len(rows))], dtype=np.int64)
    distance = np.array([l2_distances(rows[of : of + 1], rows[place])[0] for place, of in enumerate(first)])
    return Components(first, distance.astype(np.float64), int(np.count_nonzero(distance > delta)))


def _root(roots: list[int], place: int) -> int:
    """The first window of the component so far; shortens the way to it."""
    while roots[place] != place:
        roots[place] = roots[roots[place]]
        place = roots[place]
    return place
