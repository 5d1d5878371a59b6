"""What the calibration of an encoder shows: every t, each source by itself, and every way of encoding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lam_vllm.evaluation.calibration import PROFILES, Band, Floors, propose_threshold, setting_of
from lam_vllm.evaluation.measures.gold import Figure, gold_rates, line_retention, net_removal, word_retention
from lam_vllm.evaluation.rows import Row, by
from lam_vllm.evaluation.tables import Column, Figures, number, percent


def threshold_table(rows: Iterable[Row], thresholds_cos: Sequence[float]) -> Figures:
    """What each profile removes and keeps at every t, over all runs together."""
    groups = by(rows, "method", "setting")
    columns = [Column("threshold_cos", "t", number("g"))]
    for name in PROFILES:
        columns += [
            Column(f"{name}_removed_net", f"{name}\nnet", percent(1)),
            Column(f"{name}_lines_kept", "\nlines", percent(1)),
            Column(f"{name}_gold_kept", "\ngold", percent(2)),
        ]
    records: list[dict[str, Any]] = [
        {"threshold_cos": t}
        | {f"{name}_{key}": figure for name in PROFILES for key, figure in _kept(groups[name, setting_of(t)]).items()}
        for t in thresholds_cos
    ]
    first = groups["l1", setting_of(thresholds_cos[0])]
    note = (
        f"{len(first):,} runs, {sum(row.observation_tokens for row in first):,} tokens of tool output, in it "
        f"{sum(row.distinct_lines for row in first):,} distinct lines, "
        f"{sum(row.gold_witnessed for row in first):,} gold lines; lines and gold: what is kept"
    )
    return Figures(
        "thresholds", "what each t removes, net of references, and what stays", tuple(columns), records, note
    )


def source_table(rows: Iterable[Row], thresholds_cos: Sequence[float], floors: Floors) -> Figures:
    """What would be proposed for each source by itself, and what L1 keeps of it at the t proposed for all."""
    l1 = [row for row in rows if row.method == "l1"]
    threshold_cos = propose_threshold(l1, thresholds_cos, floors)
    records = []
    for (source,), group in by(l1, "source").items():
        at = [row for row in group if threshold_cos is not None and row.setting == setting_of(threshold_cos)]
        records.append(
            {
                "source": source,
                "runs": len({row.run for row in group}),
                "threshold_cos": propose_threshold(group, thresholds_cos, floors),
                **({f"l1_{key}": figure for key, figure in _kept(at).items()} if at else {}),
            }
        )
    columns = (
        Column("source", "source"),
        Column("runs", "runs", number(",")),
        Column("threshold_cos", "its own\nt", number("g")),
        Column("l1_lines_kept", "lines\nkept", percent(2)),
        Column("l1_gold_kept", "gold\nkept", percent(2)),
    )
    title = "each source by itself"
    note = "" if threshold_cos is None else f"kept: by L1 at t = {threshold_cos:g}; -: no t of the grid, or no patch"
    return Figures("sources", title, columns, records, note)


def band_table(bands: Iterable[Band], windows: int) -> Figures:
    """The difference from canonical of every way of encoding."""
    return Figures(
        "passes",
        "largest difference from a canonical cosine",
        (Column("label", "way"), Column("largest_difference_cos", "difference", number(".2g"))),
        [{"label": band.way.label, "largest_difference_cos": band.largest_difference} for band in bands],
        f"over all pairs of {windows:,} of the runs' windows",
    )


def _kept(rows: Sequence[Row]) -> dict[str, Figure]:
    return {
        "removed_net": net_removal(rows),
        "lines_kept": line_retention(rows),
        "words_kept": word_retention(rows),
        "gold_kept": gold_rates(rows).strict_micro,
    }
