"""Tables of a sweep over settings: what each floor of evidence allows, what it costs, and what removal is worth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from lam_vllm.evaluation.measures.by_size import by_size
from lam_vllm.evaluation.measures.ecr import FLOORS, Point, ecr, floor_costs, points
from lam_vllm.evaluation.measures.gold import Figure, gold_rates, net_removal
from lam_vllm.evaluation.measures.outcomes import BFR_ASSUMES, BUDGETS_TOKENS, RSC_ASSUMES, bfr, rsc
from lam_vllm.evaluation.rows import Row, by
from lam_vllm.evaluation.tables import Column, Figures, number, percent
from lam_vllm.performance_model.ledger import Outcome, Workload, break_even, eta

KAPPAS = (1, 3, 8)
OURS = ("paper", "t=0.95")
"""What break-even is counted against, as in the paper's table 18; where it is not there, there is none."""


def sweep_tables(source: str, rows: Sequence[Row], workload: Workload | None) -> list[Figures]:
    """The tables of the rows of one source, or of several taken as one; every method on the same runs.

    Raises:
        OptionError: they are not.
    """
    found = points(rows)
    made = [ecr_table(found), floor_table(found), settings_table(rows, workload)]
    return [
        replace(table, title=f"{source}: {table.title}", records=[{"source": source, **each} for each in table.records])
        for table in made
    ]


def ecr_table(found: Iterable[Point]) -> Figures:
    """ECR@tau of each family at every floor, and the setting that binds (the paper's table 17)."""
    families: dict[str, list[Point]] = {}
    for point in found:
        families.setdefault(point.method, []).append(point)
    columns = [Column("method", "family")]
    for floor in FLOORS:
        columns += [
            Column(f"ecr_{floor:.3f}", f"ECR@\n{floor:.3f}", percent(1)),
            Column(f"at_{floor:.3f}", "\nat", width=9),
        ]
    return Figures(
        "ecr",
        "the most that a family removes while every seed keeps that share of the gold lines",
        tuple(columns),
        [{"method": method, **_binding(of_family)} for method, of_family in families.items()],
        "-: no setting keeps so much; n/m: this measure says nothing of new text",
    )


def _binding(of_family: Sequence[Point]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for floor in FLOORS:
        binding = ecr(of_family, floor)
        point = binding if isinstance(binding, Point) else None
        record[f"ecr_{floor:.3f}"] = point.removal if point else binding
        record[f"at_{floor:.3f}"] = point.setting if point else None
    return record


def floor_table(found: Iterable[Point]) -> Figures:
    """What each floor lets through (the paper's table 16)."""
    return Figures(
        "floors",
        "what each floor of evidence lets through, at worst",
        (
            Column("floor", "floor", number(".3f")),
            Column("admissible", "settings that keep it"),
            Column("losing_runs", "runs that lose a gold line", percent(1)),
            Column("rsc_drop", "RSC given up", percent(2)),
        ),
        [
            {
                "floor": cost.floor,
                "admissible": cost.admissible,
                "losing_runs": cost.losing_runs,
                "rsc_drop": cost.rsc_drop,
            }
            for cost in floor_costs(found)
        ],
    )


def settings_table(rows: Iterable[Row], workload: Workload | None) -> Figures:
    """Removal, evidence, RSC, BFR and eta of every setting (the paper's tables 3, 18 and 19)."""
    groups = by(rows, "method", "setting")
    outcomes = {key: outcome_of(group) for key, group in groups.items()}
    ours = outcomes.get(OURS)
    columns = (
        Column("label", "method"),
        Column("removed_net", "net", percent(1)),
        Column("gold_kept", "gold", percent(1)),
        Column("rsc", "RSC", percent(1)),
        *(Column(f"bfr_{budget}", f"BFR@\n{budget // 1000}K", percent(0)) for budget in BUDGETS_TOKENS),
        *(Column(f"eta_{kappa}", f"eta\n({kappa})", number(".3f")) for kappa in KAPPAS),
        Column("break_even", "break\neven", number(".1f")),
    )
    records = [
        {
            "label": f"{method} {setting}".strip(),
            "method": method,
            "setting": setting,
            "removed_net": net_removal(group),
            "gold_kept": gold_rates(group).strict_micro,
            "rsc": rsc(group).value,
            **{f"bfr_{budget}": bfr(group, budget).value for budget in BUDGETS_TOKENS},
            **worth(outcomes[method, setting], ours, workload),
        }
        for (method, setting), group in groups.items()
    ]
    assumed = f"RSC assumes that {'; that '.join(RSC_ASSUMES)}. BFR: {'; '.join(BFR_ASSUMES)}."
    against = f" Break-even against {' '.join(OURS)}." if ours else ""
    return Figures("settings", "every setting", columns, records, assumed + against)


def size_table(rows: Iterable[Row]) -> Figures:
    """Removal by the size of the run's tool output, for each method at each setting (the paper's figure 9b)."""
    found = {key: by_size(group) for key, group in by(rows, "method", "setting").items()}
    sizes = sorted({(each.least_tokens, each.below_tokens) for bins in found.values() for each in bins})
    columns = tuple(Column(f"from_{least}", f"{least:,}\nto {below:,}", percent(1)) for least, below in sizes)
    records = []
    for (method, setting), bins in found.items():
        record: dict[str, Any] = {"label": f"{method} {setting}".strip(), "method": method, "setting": setting}
        for each in bins:
            record[f"from_{each.least_tokens}"] = each.removal
            record[f"runs_from_{each.least_tokens}"] = each.runs
        records.append(record)
    title = "removed, net, by tokens of tool output in the run"
    return Figures("sizes", title, (Column("label", "method"), *columns), records)


def outcome_of(rows: Sequence[Row]) -> Outcome | None:
    """Removal and lost gold lines of one seed on average; None where either is unknown or everything is gone."""
    removal: Figure = net_removal(rows)
    if any(row.gold_kept is None for row in rows) or not isinstance(removal, float) or removal >= 1:
        return None
    seeds = len({row.seed for row in rows})
    lost = sum(row.gold_witnessed - row.gold_kept for row in rows if row.gold_kept is not None)
    return Outcome(removal, round(lost / seeds))


def worth(outcome: Outcome | None, ours: Outcome | None, workload: Workload | None) -> dict[str, float | None]:
    """`eta_1`, `eta_3` and `eta_8` of an outcome, and `break_even` against `ours`; None where one cannot be told."""
    etas = {f"eta_{kappa}": eta(outcome, kappa, workload) if outcome and workload else None for kappa in KAPPAS}
    even = break_even(ours, outcome, workload) if ours and outcome and workload else None
    return {**etas, "break_even": even}
