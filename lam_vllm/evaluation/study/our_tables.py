"""Our figures in the layout of the paper's tables, in the paper's units: shares in percent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lam_vllm.evaluation.measures.ecr import FLOORS, Point, ecr, floor_costs, points
from lam_vllm.evaluation.measures.gold import Figure, Unmeasurable, gold_rates, net_removal
from lam_vllm.evaluation.measures.outcomes import BUDGETS_TOKENS, bfr, rsc
from lam_vllm.evaluation.rows import Row, by
from lam_vllm.evaluation.study.corpus_figures import CorpusFigures, Sizes, T
from lam_vllm.evaluation.study.sweep import KAPPAS, outcome_of, worth
from lam_vllm.performance_model.ledger import context_gain

Ours = Mapping[str, Sequence[Any]]
"""Figures by the key of the paper's row, in the order of its columns; None where there is none."""
PROVEN_RANKS = (1, 5, 10)


@dataclass(frozen=True, slots=True)
class Everything:
    """What the tables are made of, over one set of runs: a sweep's rows, and what the runs are like."""

    rows: Sequence[Row]
    corpus: CorpusFigures
    sizes: Sizes

    def of(self, method: str, setting: str = "") -> list[Row]:
        """The rows of one method at one setting, of all seeds."""
        return [row for row in self.rows if (row.method, row.setting) == (method, setting)]


def our_tables(known: Everything, families: Sequence[str]) -> dict[str, Ours]:
    """The tables by number; `families` are the columns of table 17."""
    found = points(known.rows)
    makers: dict[str, Callable[[Everything], Ours]] = {
        "3": _table_3,
        "5": lambda known: {name: [100 * unit.share] for name, unit in known.corpus.duplicates.items()},
        "6": lambda known: {_t(t): [100 * at.removed, 100 * at.ceiling] for t, at in known.corpus.windows.items()},
        "11": _table_11,
        "12": _table_12,
        "15": _table_15,
        "16": lambda _: {
            f"{cost.floor:.3f}": [cost.admissible, _percent(cost.losing_runs), _percent(cost.rsc_drop)]
            for cost in floor_costs(found)
        },
        "17": lambda _: {f"{floor:.3f}": [_ecr(found, family, floor) for family in families] for floor in FLOORS},
        "18": _table_18,
        "19": _table_19,
        "21": _table_21,
        "23": _table_23,
        "24": lambda known: {
            str(each.name): [100 * each.removed, *(_percent(each.unchanged.get(k)) for k in PROVEN_RANKS)]
            for each in known.corpus.relations
        },
        "25": lambda known: {str(each.k): [each.median, each.p90, each.p99, each.max] for each in known.corpus.margins},
    }
    return {number: make(known) for number, make in makers.items()}


def _table_3(known: Everything) -> Ours:
    table = {}
    for t, at in known.corpus.windows.items():
        rows, recall = known.of("paper", f"t={t:g}"), known.corpus.retrieval[t].recall_at_10
        used = at.distances.mean_over_delta if at.distances else None
        table[_t(t)] = [used, at.kept, recall, *_removal_evidence_rsc(rows)]
    return table


def _removal_evidence_rsc(rows: Sequence[Row]) -> list[Figure | None]:
    return [_percent(net_removal(rows)), _percent(gold_rates(rows).strict_micro), _percent(rsc(rows).value)]


def _table_11(known: Everything) -> Ours:
    found = {t: at.distances for t, at in known.corpus.windows.items() if at.distances is not None}
    return {_t(t): [distances.median, distances.p99, distances.max] for t, distances in found.items()}


def _table_12(known: Everything) -> Ours:
    order = known.corpus.layers[T]
    return {
        "L0": [100 * order.l0],
        "L1": [100 * order.l1],
        "L0 then L1": [100 * order.l0_then_l1],
        "L1 then L0": [100 * order.l1_then_l0],
        "if independent": [100 * order.independence_estimate],
    }


def _table_15(known: Everything) -> Ours:
    order = known.corpus.layers[T]
    both = known.of("paper", f"t={T:g}")
    return {
        "L0": _given_and_paid(order.l0, known.of("l0")),
        "L1": _given_and_paid(order.l1, known.of("l1", f"t={T:g}")),
        "L1 then L0, gross": _given_and_paid(order.l1_then_l0, both),
        "L1 then L0, net": _given_and_paid(order.l1_then_l0_net, both),
    }


def _given_and_paid(removal: float, rows: Sequence[Row]) -> list[float | None]:
    """Removal, the context gained by it, and the milliseconds that a tool result takes."""
    results = sum(row.observations for row in rows)
    return [100 * removal, context_gain(removal), sum(row.cpu_ms for row in rows) / results if results else None]


def _ecr(found: Sequence[Point], family: str, floor: float) -> Figure | None:
    of_family = [point for point in found if point.method == family]
    binding = ecr(of_family, floor) if of_family else None
    return _percent(binding.removal if isinstance(binding, Point) else binding)


def _table_18(known: Everything) -> Ours:
    outcomes = {key: outcome_of(rows) for key, rows in by(known.rows, "method", "setting").items()}
    ours = outcomes.get(("paper", f"t={T:g}"))
    table = {}
    for (method, setting), outcome in outcomes.items():
        what = worth(outcome, ours, known.sizes.workload)
        etas = [what[f"eta_{kappa}"] for kappa in KAPPAS]
        table[f"{method} {setting}"] = [outcome.removal if outcome else None, *etas, what["break_even"]]
    return table


def _table_19(known: Everything) -> Ours:
    both = known.of("none"), known.of("paper", f"t={T:g}")
    return {f"{b // 1000}K": [_percent(bfr(rows, b).value) for rows in both] for b in BUDGETS_TOKENS}


def _table_21(known: Everything) -> Ours:
    """L1 alone by t, since the paper's row for its other runs is that of its table 12."""
    methods = {"L0": ("l0", ""), **{_t(t): ("l1", f"t={t:g}") for t in known.corpus.windows}}
    return {name: _of_context_and_output(known, known.of(*method)) for name, method in methods.items()}


def _of_context_and_output(known: Everything, rows: Sequence[Row]) -> list[Figure | None]:
    gone = sum(row.observation_tokens - row.emitted_tokens for row in rows)
    return [100 * gone / max(1, known.sizes.context_tokens), _percent(net_removal(rows))]


def _table_23(known: Everything) -> Ours:
    table = {}
    for t, at in known.corpus.windows.items():
        rows, rate = known.of("paper", f"t={t:g}"), at.rate
        removed, _, resolved = _removal_evidence_rsc(rows)
        with_gold = [row for row in rows if row.has_gold]
        intact = sum(row.gold_kept == row.gold_witnessed for row in with_gold) / len(with_gold) if with_gold else None
        bits = [rate.log2_packing, rate.entropy, rate.log2_retained]
        table[_t(t)] = [*bits, removed, _percent(intact), resolved]
    return table


def _t(threshold_cos: float) -> str:
    return f"{threshold_cos:g}"


def _percent(share: Figure | None) -> Figure | None:
    return share if share is None or isinstance(share, Unmeasurable) else 100 * share
