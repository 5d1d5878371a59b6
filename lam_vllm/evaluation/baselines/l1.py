"""L1 alone (the paper, section 1): greedily, a window near a retained one becomes a stub."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lam_vllm.encoders.base import OnePass
from lam_vllm.evaluation.baselines.windowed import WindowEmbeddings
from lam_vllm.evaluation.corpus import Run
from lam_vllm.near_duplicates import RetainedWindows, find_match
from lam_vllm.types import Embedding, Match


class NearDuplicates:
    """A `Method`: fixed windows within delta of an earlier retained one of the same run become one stub line each."""

    name = "l1"
    seed = 0
    verbatim = True

    def __init__(self, threshold_cos: float, windows: WindowEmbeddings) -> None:
        self.setting = f"t={threshold_cos:g}"
        self._threshold_cos = threshold_cos
        self._windows = windows

    def shorten(self, run: Run) -> list[Any]:
        """The run's messages with a stub for each near-duplicate window."""
        windowed = self._windows.windowed(run)
        found = greedy_matches(windowed.texts(), self._windows.rows(run), self._threshold_cos)
        return windowed.without(
            {place: windowed.windows[match.representative] for place, match in found.items()},
        )


def greedy_matches(texts: Sequence[str], rows: Embedding, threshold_cos: float) -> dict[int, Match]:
    """For each window that is dropped, by its place, the lowest retained window within delta of it.

    `texts` are N windows in order of arrival and `rows` their embeddings, (N, D) float32 of unit length. Distances are
    those of `search.verify`. At most N retained windows are compared with each.
    """
    retained = RetainedWindows(rows.shape[1])
    places: list[int] = []
    dropped: dict[int, Match] = {}
    for place, text in enumerate(texts):
        row = rows[place]
        match = find_match(text, OnePass(lambda _, row=row: row), retained, threshold_cos).match  # type: ignore[misc]
        if match is None:
            retained.add(text, row, eligible=True)
            places.append(place)
        else:
            dropped[place] = Match(places[match.representative], match.distance)
    return dropped
