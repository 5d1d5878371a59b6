"""The report of the performance model as tables."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from lam_vllm.commands.model_report import Report
from lam_vllm.commands.model_words import caveats
from lam_vllm.evaluation.tables import Column, Figures, number
from lam_vllm.performance_model.capacity import kv_capacity_tokens
from lam_vllm.performance_model.forecast import NO_COMPACTION, Forecast, Runs, full_turn, mean_growth_tokens
from lam_vllm.performance_model.paper import METHODS, costs_of
from lam_vllm.performance_model.turn import TurnCost, mean
from lam_vllm.performance_model.workload import without_removal

SHOWN_TURNS = 10
SECONDS = number(".3g")
_PARTS = (
    Column("total_seconds", "s/turn", number(".4g")),
    Column("weights_seconds", "weights", SECONDS),
    Column("prefill_seconds", "prefill", SECONDS),
    Column("context_seconds", "context", SECONDS),
    Column("compaction_seconds", "compact", SECONDS),
    Column("reprefill_seconds", "again", SECONDS),
)
TTFT = "ttft_seconds"


def tables(report: Report) -> list[Figures]:
    """All tables, in the order in which they are printed."""
    made = [_policies(report), _full(report), _ttft(report), _budget(report)]
    if not report.engine.accounting.refuses:
        made.append(_methods(report))
    return [*made, _caveats(report), _break_even(report), _engine(report), _constants(report)]


def _policies(report: Report) -> Figures:
    admit = report.of_first("admit").turn.total
    records = [
        {**_record(each), "over_admit": each.turn.total / admit} for each in (report.plain, *report.schedules.values())
    ]
    engine = report.engine
    return Figures(
        "policies",
        f"{engine.model.name} on {engine.device.name}, batch {engine.batch}, accounting {engine.accounting.name}",
        (
            Column("policy", "policy", width=22),
            *_parts_shown(report),
            Column(TTFT, "TTFT", SECONDS),
            Column("over_admit", "/admit", number(".3g")),
        ),
        records,
        f"seconds of a request, mean over {_which_turns(report)}",
    )


def _parts_shown(report: Report) -> tuple[Column, ...]:
    """A request's fixed part only where one was measured."""
    fixed = (Column("fixed_seconds", "fixed", SECONDS),) if report.engine.served else ()
    return (*_PARTS, *fixed)


def _which_turns(report: Report) -> str:
    turns = sum(map(len, report.plain.costs))
    if report.engine.accounting.refuses:
        return f"the {turns:,} turns that all can answer"
    return f"all {turns:,} turns, whether they fit or not"


def _full(report: Report) -> Figures:
    engine, first = report.engine, report.first
    limits = {"window_turn": engine.model.window_tokens, "memory_turn": kv_capacity_tokens(engine)}
    sets: dict[str, Runs] = {NO_COMPACTION: [without_removal(run) for run in first.runs]}
    sets |= {f"admit {profile.name}": profile.runs for profile in report.profiles}
    answered = {each.policy: each.answered for each in (report.plain, *report.schedules.values())}
    return Figures(
        "full",
        "when the context is full",
        (
            Column("policy", "policy", width=22),
            Column("growth_tokens", "tokens a turn", number(",.1f")),
            Column("window_turn", "window full", number(",")),
            Column("memory_turn", "memory full", number(",")),
            Column("turns", "turns that fit", number(",")),
        ),
        [
            {
                "policy": name,
                "growth_tokens": mean_growth_tokens(runs),
                **{key: full_turn(runs, limit) for key, limit in limits.items()},
                "turns": answered[name],
            }
            for name, runs in sets.items()
        ],
        f"the turn that fills it, at the mean growth; window {engine.model.window_tokens:,} tokens, memory for "
        f"{limits['memory_turn']:,.0f} a request; of {sum(map(len, first.runs)):,} turns those that fit",
    )


def _record(forecast: Forecast) -> dict[str, Any]:
    cost = forecast.turn
    return {"policy": forecast.policy, **_parts(cost), TTFT: cost.ttft, "turns": forecast.answered}


def _parts(cost: TurnCost) -> dict[str, float]:
    parts = {**asdict(cost), "context": cost.context, "total": cost.total}
    return {f"{part}_seconds": seconds for part, seconds in parts.items()}


def _ttft(report: Report) -> Figures:
    shown = {report.plain.policy: report.plain.ttft}
    shown |= {report.of_first(name).policy: report.of_first(name).ttft for name in ("admit", "suffix", "in_place")}
    turns = range(len(report.plain.ttft))
    return Figures(
        TTFT,
        "seconds to the first token, by turn",
        (Column("turn", "turn"), *(Column(name, name, SECONDS) for name in shown)),
        [{"turn": turn + 1, **{name: by_turn[turn] for name, by_turn in shown.items()}} for turn in turns],
        "out of the prefill, without queues; of several runs the mean of those that have the turn",
    )


def shortened(table: Figures) -> Figures:
    """The table as a terminal has room for it: of a table by turn some, evenly spread, the first and last among them.

    Every other is as it was.
    """
    if table.name != TTFT or len(table.records) <= SHOWN_TURNS:
        return table
    last = len(table.records) - 1
    places = (round(last * step / (SHOWN_TURNS - 1)) for step in range(SHOWN_TURNS))
    return replace(table, records=[table.records[place] for place in places])


def _budget(report: Report) -> Figures:
    return Figures(
        "budget",
        f"under a budget of {report.budget_tokens:,.0f} tokens",
        (Column("policy", "policy", width=22), *_parts_shown(report), Column("turns", "turns", number(","))),
        [_record(each) for each in report.budgeted],
        "each over the turns that fit: without compaction, and with all of it",
    )


def _methods(report: Report) -> Figures:
    costs = {method: mean(costs_of(report.engine, method)) for method in METHODS}
    ours = costs[METHODS[-1]].total
    return Figures(
        "methods",
        "the paper's methods over its 1,453 turns (table 2)",
        (
            Column("method", "method"),
            Column("schedule", "schedule"),
            Column("removal", "r_eff", number(".4g")),
            Column("total_seconds", "s/turn", number(".1f")),
            Column("over_lam", "/LAM", number(".1f")),
        ),
        [
            {
                "method": method.name,
                "schedule": "admit" if method.admits else "wall",
                "removal": method.removal,
                **_parts(cost),
                "over_lam": cost.total / ours,
            }
            for method, cost in costs.items()
        ],
    )


def _caveats(report: Report) -> Figures:
    """For the files alone: the terminal has the words as lines."""
    return Figures("does_not_pay", "", (), [asdict(each) for each in caveats(report)])


def _break_even(report: Report) -> Figures:
    """For the files alone: the words say it."""
    return Figures("break_even", "", (), [{"profile": report.first.name, **asdict(report.break_even)}])


def _engine(report: Report) -> Figures:
    """For the files alone."""
    engine = report.engine
    asked = {"device": engine.device.name, "batch": engine.batch, "accounting": engine.accounting.name}
    return Figures(
        "engine", "", (), [{**asked, **{f"model_{key}": value for key, value in asdict(engine.model).items()}}]
    )


def _constants(report: Report) -> Figures:
    """For the files alone."""
    constants = report.engine.device.constants
    return Figures("constants", "", (), [{"name": name, **asdict(each)} for name, each in constants.items()])
