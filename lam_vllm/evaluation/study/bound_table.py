"""What connected components cost, where the greedy rule keeps its bound: windows that are farther than delta."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lam_vllm.evaluation.baselines.components import ConnectedComponents
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.tables import Column, Figures


def bound_table(methods: Iterable[ConnectedComponents], runs: Sequence[Run]) -> Figures:
    """For each method the windows that it drops in all runs, and how many of them break the bound; groups them anew."""
    records = []
    for method in methods:
        found = [method.groups(run) for run in runs]
        records.append(
            {
                "method": method.name,
                "setting": method.setting,
                "label": f"{method.name} {method.setting}",
                "dropped": sum(each.dropped for each in found),
                "violations": sum(each.violations for each in found),
                "violating_runs": sum(each.violations > 0 for each in found),
            }
        )
    columns = (
        Column("label", "method"),
        Column("dropped", "windows dropped"),
        Column("violations", "of them beyond delta"),
        Column("violating_runs", "in runs"),
    )
    return Figures("bound", "windows that are farther than delta from what stands for them", columns, records)
