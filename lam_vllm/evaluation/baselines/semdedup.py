"""SemDeDup (Abbas et al., arXiv 2303.09540): k-means, then within each cluster the odd ones out stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from math import isqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lam_vllm.errors import MissingExtraError
from lam_vllm.evaluation.baselines.windowed import PlacedWindow, WindowEmbeddings
from lam_vllm.evaluation.corpus import Run
from lam_vllm.types import Embedding

NONE_BEFORE = -1
_TIE_DECIMALS = 6
"""Equal windows must tie whatever the order of a product's sums; then the earlier one stays."""


@dataclass(frozen=True, slots=True)
class Nearest:
    """For each of N windows the most similar one before it in its cluster's order, farthest from the centroid first.

    `cosine` is (N,) float32, -inf where nothing stands before; `place` is (N,) int64, then `NONE_BEFORE`.
    """

    cosine: NDArray[np.float32]
    place: NDArray[np.int64]


class Neighbour(NamedTuple):
    """What stands before a window in its cluster: the most similar window and its cosine; None where nothing does."""

    cosine: float
    window: PlacedWindow | None


class _Share(NamedTuple):
    """One run's part of a clustering, and of the seconds that it took. Held by the run, as ids need not be unique."""

    run: Run
    neighbours: list[Neighbour]
    seconds: float


class SemDeDup:
    """A `Method`: a window with a cosine of at least t to one that stands before it in its cluster becomes a stub.

    As in the published code, the one before need not be kept itself, so chains drop windows too, and nothing asks
    which came first in the run. The stub names the most similar one before; where clusters hold all runs
    (`semdedup_global`) that may stand in another run, or later in this one: of such a stub only the price is real.
    """

    verbatim = True

    def __init__(self, threshold_cos: float, clusters: ClusteredRuns, seed: int) -> None:
        self.name = clusters.name
        self.setting = f"t={threshold_cos:g}"
        self.seed = seed
        self._threshold_cos = threshold_cos
        self._clusters = clusters

    def shorten(self, run: Run) -> list[Any]:
        """The run's messages with a stub for each window that the rule drops."""
        dropped = {
            place: like
            for place, (cosine, like) in enumerate(self._clusters.neighbours(run, self.seed))
            if like is not None and cosine >= self._threshold_cos
        }
        return self._clusters.windows.windowed(run).without(dropped)


class ClusteredRuns:
    """Clusters of each run's own windows, or of the windows of all `runs` together; kept for all thresholds.

    There are about as many clusters as windows in each, since no published number fits runs of such different size.

    Raises:
        MissingExtraError: scikit-learn is not installed.
    """

    def __init__(self, windows: WindowEmbeddings, runs: Sequence[Run] | None = None) -> None:
        if find_spec("sklearn") is None:
            raise MissingExtraError("SemDeDup", "eval")
        self.name = "semdedup" if runs is None else "semdedup_global"
        self.windows = windows
        self._runs = None if runs is None else tuple(runs)
        self._known: dict[tuple[int, int], _Share] = {}

    def neighbours(self, run: Run, seed: int) -> list[Neighbour]:
        """For each of the run's windows the most similar one before it in its cluster.

        Raises:
            KeyError: the clusters hold all runs, and this is not one of them.
        """
        if (id(run), seed) not in self._known:
            self._cluster((run,) if self._runs is None else self._runs, seed)
        self.windows.rows(run)  # whoever asks pays for embeddings too
        share = self._known[id(run), seed]
        self.windows.charge(share.seconds)
        return share.neighbours

    def _cluster(self, runs: Sequence[Run], seed: int) -> None:
        entered = self.windows.cpu_seconds()
        placed = [window for run in runs for window in self.windows.windowed(run).windows]
        rows = np.concatenate([self.windows.rows(run) for run in runs])
        began = self.windows.cpu_seconds()
        nearest = nearest_before(rows, isqrt(len(rows)), seed)
        ended = self.windows.cpu_seconds()
        found = [
            Neighbour(float(cosine), None if place == NONE_BEFORE else placed[place])
            for cosine, place in zip(nearest.cosine, nearest.place.tolist(), strict=True)
        ]
        for run in runs:
            count = len(self.windows.windowed(run).windows)
            seconds = (ended - began) * count / max(1, len(rows))
            self._known[id(run), seed], found = _Share(run, found[:count], seconds), found[count:]
        self.windows.charge(entered - self.windows.cpu_seconds())  # each run pays its share when it is asked for


def drops(embeddings: Embedding, threshold_cos: float, clusters: int, seed: int) -> list[int]:
    """The indices, ascending, of the rows that SemDeDup drops from `embeddings`, (N, D) float32 of unit length."""
    cosine = nearest_before(embeddings, clusters, seed).cosine
    return [int(place) for place in np.flatnonzero(cosine >= threshold_cos)]


def nearest_before(embeddings: Embedding, clusters: int, seed: int) -> Nearest:
    """What stands before each row of (N, D) float32 in its cluster; one answer for every threshold.

    There are at most as many clusters as different rows. Quadratic in the size of a cluster.
    """
    nearest = Nearest(np.full(len(embeddings), -np.inf, np.float32), np.full(len(embeddings), NONE_BEFORE, np.int64))
    if not len(embeddings):
        return nearest
    labels, centroids = _k_means(embeddings, clusters, seed)
    for label in range(len(centroids)):
        members = np.flatnonzero(labels == label)
        to_centroid = np.round(embeddings[members].astype(np.float64) @ centroids[label], _TIE_DECIMALS)
        order = members[np.argsort(to_centroid, kind="stable")]  # farthest first
        before = np.tril(embeddings[order] @ embeddings[order].T, k=-1)
        before[np.triu_indices(len(order))] = -np.inf
        nearest.cosine[order[1:]] = before.max(axis=1)[1:]
        nearest.place[order[1:]] = order[before.argmax(axis=1)[1:]]
    return nearest


def _k_means(embeddings: Embedding, clusters: int, seed: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Labels (N,) and centroids (K, D). One thread, so that the seed alone decides."""
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    different = len(np.unique(embeddings, axis=0))
    with threadpool_limits(1):
        fitted = KMeans(min(max(1, clusters), different), random_state=seed, n_init=1).fit(embeddings)
    return fitted.labels_, fitted.cluster_centers_.astype(np.float64)
