"""What searches find and look at in recorded runs, each run by itself: the grid of the paper's table 26, and drops.

Two questions are kept apart. Over *all pairs* of windows of a run, as the paper's table has it: which share of those
within the radius a search proposes. Half of these pairs are the same text twice, which no search is asked about. So
over *arriving* windows whose text no retained window has, against the retained ones: how many are still dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from lam_vllm.bound import delta_of
from lam_vllm.encoders.base import OnePass
from lam_vllm.near_duplicates import RetainedWindows, find_match
from lam_vllm.ops.reference import l2_distances
from lam_vllm.search import BandedSearch, ExhaustiveSearch, PrunedSearch, Search
from lam_vllm.search.basis import principal_basis
from lam_vllm.types import Embedding

BAND_COORDINATES = (2, 4, 8, 16)
EPS_OVER_SIGMA = (0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3)
THRESHOLDS_COS = (0.99, 0.95)
BANDED = ((4, 0.2), (4, 0.15), (8, 0.2), (8, 0.3), (8, 0.4))


@dataclass(frozen=True, slots=True)
class Embedded:
    """A run's windows: where it comes from, their texts, and their (N, D) embeddings."""

    source: str
    texts: Sequence[str]
    rows: Embedding


@dataclass(slots=True)
class Looked:
    """Of `asked` arriving windows that had `pairs` retained ones before them: pairs looked at whole, and the drops.

    `dropped` counts what looking at every window drops, `still_dropped` those of them that the search drops, or that
    have the text of a window which it retained for having missed its match.
    """

    asked: int = 0
    pairs: int = 0
    examined: int = 0
    dropped: int = 0
    still_dropped: int = 0


def all_pairs(runs: Sequence[Embedded]) -> dict[str, Any]:
    """Recall at each t and the share of pairs that agree in a band, by setting, over all pairs of windows of a run."""
    near = {t: [] for t in THRESHOLDS_COS}  # type: dict[float, list[list[Any]]]
    for run in runs:
        distances = [l2_distances(run.rows[:place], query) for place, query in enumerate(run.rows)]
        for t, found in near.items():
            found.append([each <= delta_of(t) for each in distances])
    grid = [_agreement(runs, near, coordinates, eps) for coordinates in BAND_COORDINATES for eps in EPS_OVER_SIGMA]
    pairs = sum(len(each) for run in near[THRESHOLDS_COS[0]] for each in run)
    totals = {f"{t:g}": int(sum(each.sum() for run in found for each in run)) for t, found in near.items()}
    return {"pairs": pairs, "near": totals, "grid": grid}


def _agreement(
    runs: Sequence[Embedded], near: dict[float, list[list[Any]]], coordinates: int, eps_over_sigma: float
) -> dict[str, float]:
    agreeing = pairs = 0
    found = dict.fromkeys(near, 0)
    for number, run in enumerate(runs):
        search = BandedSearch(run.rows.shape[1], coordinates, eps_over_sigma)
        for place, query in enumerate(run.rows):
            agree = search.agreeing(run.rows[:place], query)
            pairs += place
            agreeing += int(agree.sum())
            for t in near:
                found[t] += int((agree & near[t][number][place]).sum())
    recalls = {
        f"recall_{t:g}": found[t] / total if (total := sum(int(each.sum()) for run in near[t] for each in run)) else 1.0
        for t in near
    }
    return {"r": coordinates, "eps_over_sigma": eps_over_sigma, "examined": agreeing / pairs, **recalls}


def arriving(runs: Sequence[Embedded], search: Search, threshold_cos: float) -> Looked:
    """The paper's first layer over each run by a fork of this search, beside the one that looks at every window."""
    total = Looked()
    for run in runs:
        exact = [dropped for dropped, _, _ in _first_layer(run, ExhaustiveSearch(), threshold_cos)]
        for ours, (dropped, pairs, examined) in zip(exact, _first_layer(run, search, threshold_cos), strict=True):
            total.pairs += pairs
            total.examined += examined
            total.asked += pairs > 0
            total.dropped += ours is True
            total.still_dropped += ours is True and dropped is not False
    return total


def _first_layer(run: Embedded, search: Search, t: float) -> Iterator[tuple[bool | None, int, int]]:
    """Of each window: whether it is dropped (None: a retained one has its text), its pairs, and pairs looked at."""
    retained = RetainedWindows(run.rows.shape[1], search)
    own = search.fork(0)
    for text, row in zip(run.texts, run.rows, strict=True):
        same = retained.first(text) is not None
        found = find_match(text, OnePass(lambda _, row=row: row), retained, t)  # type: ignore[misc]
        pairs = 0 if same else len(retained)
        yield (None if same else found.match is not None), pairs, examined(own, retained, row, t) if pairs else 0
        if found.match is None:
            retained.add(text, row, True)


def examined(search: Search, retained: RetainedWindows, query: Embedding, threshold_cos: float) -> int:
    """How many retained windows the search looks at whole, for this query."""
    if isinstance(search, BandedSearch):
        return int(search.agreeing(retained.rows, query).sum())
    if isinstance(search, PrunedSearch):
        return len(search.left(retained.rows, retained.eligible, query, threshold_cos))
    return len(retained)


def drops(runs: Sequence[Embedded], basis: Any) -> list[dict[str, Any]]:
    """What `arriving` says at each t of the searches that are shipped, and of the paper's other settings."""
    dimension = runs[0].rows.shape[1]
    searches: dict[str, Search] = {"pruned": PrunedSearch(basis)}
    for r, eps_over_sigma in BANDED:
        searches[f"banded, r={r}, {eps_over_sigma}"] = BandedSearch(dimension, r, eps_over_sigma)
    return [
        {"t": t, "search": name, **asdict(arriving(runs, search, t))}
        for t in THRESHOLDS_COS
        for name, search in searches.items()
    ]


def left_out(runs: Sequence[Embedded]) -> list[dict[str, Any]]:
    """`arriving` at t = 0.95 of pruned searches by source, the basis made from the windows of the other sources."""
    lines = []
    for source in dict.fromkeys(run.source for run in runs):
        others = np.concatenate([run.rows for run in runs if run.source != source] or [runs[0].rows[:1]])
        basis = principal_basis(others).astype(np.float64)
        own = [run for run in runs if run.source == source]
        lines.append({"source": source, **asdict(arriving(own, PrunedSearch(basis), 0.95))})
    return lines
