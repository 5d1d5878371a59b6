"""Times of look-ups as figures and as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from scipy.stats import ks_2samp, mannwhitneyu  # type: ignore[import-untyped]
from stored import markdown

STATUS = {"found": 200, "expired": 410, "foreign": 404, "unknown": 404, "control": 404, "malformed": 404}
"""What an id of this kind has to be answered with."""
Figures: TypeAlias = dict[str, Any]


def quantiles(seconds: Sequence[float]) -> Figures:
    """Milliseconds."""
    return {f"p{each}": round(1e3 * float(np.percentile(seconds, each)), 3) for each in (50, 90, 99)}


def told_apart(times: Sequence[float], unknown: Sequence[float]) -> Figures:
    """How far these times and those of unknown ids differ."""
    distance, ranks = ks_2samp(times, unknown), mannwhitneyu(times, unknown)
    return {
        "ks": round(float(distance.statistic), 4),
        "ks_p": round(float(distance.pvalue), 4),
        "later_than_unknown": round(float(ranks.statistic) / (len(times) * len(unknown)), 4),
        "mann_whitney_p": round(float(ranks.pvalue), 4),
    }


def table(figures: Figures) -> str:
    rows = []
    for store, measured in figures["stores"].items():
        for kind, times in measured["milliseconds"].items():
            rows.append(
                (f"{store}, {kind}", str(STATUS[kind]), str(measured["reads"][kind]), *map(str, times.values()))
            )
    return markdown(("store, id", "answer", "reads", "p50 ms", "p90 ms", "p99 ms"), rows)


def differences(figures: Figures) -> str:
    rows = [
        (f"{store}, {kind}", *(str(each[name]) for name in ("ks", "ks_p", "later_than_unknown", "mann_whitney_p")))
        for store, measured in figures["stores"].items()
        for kind, each in measured["told_apart"].items()
    ]
    return markdown(("store, id", "KS to unknown", "p", "later than unknown", "p (Mann-Whitney)"), rows)
