"""Measured beside predicted: every turn, every schedule, and the gains of `admit`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np
from schedules_live import Sent
from schedules_model import (
    Setting,
    costs,
    paper_settings,
    predicted_seconds,
    served_engine,
    ttft_ratios,
    turn_ratios,
)
from schedules_prompts import SCHEDULES, Stretch, Tokens, least_budget, model_turns, prefills, prompts_of

from lam_vllm.performance_model.accounting import PAPER
from lam_vllm.performance_model.compaction import shared_lines
from lam_vllm.performance_model.served import Served

TOP = {"none": "none", "in_place": "in_place", "wall": "wall", "rebuild_all": "rebuild"}
"""The other schedules, as the keys at the top call them."""


@dataclass(frozen=True)
class Turn:
    """One turn, measured and predicted. `formula_ms` is the model's schedule as it stands: a cache without blocks."""

    run: int
    schedule: str
    turn: int
    prompt_tokens: int
    uncached_tokens: int
    predicted_uncached_tokens: int
    computed_tokens: int
    queried_tokens: int
    hit_tokens: int
    ttft_ms: float
    predicted_ms: float
    formula_ms: float

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return abs(self.predicted_ms / self.ttft_ms - 1)

    @property
    def formula_error(self) -> float:
        """The same without blocks."""
        return abs(self.formula_ms / self.ttft_ms - 1)


@dataclass(frozen=True)
class Measurement:
    """The runs, what was sent of each under every schedule, and what was known of the engine before.

    `block_tokens` is the size of the cache's blocks, `kv_tokens` what it holds.
    """

    stretches: Sequence[Stretch]
    sent: Sequence[Mapping[str, Sequence[Sent]]]
    served: Served
    tokens: Tokens
    block_tokens: int
    kv_tokens: int


def turn_rows(measurement: Measurement) -> list[Turn]:
    """A row for each turn of each schedule of each run."""
    return [row for run in range(len(measurement.stretches)) for row in _of_run(measurement, run)]


def _of_run(measurement: Measurement, run: int) -> Iterator[Turn]:
    served, tokens, stretch = measurement.served, measurement.tokens, measurement.stretches[run]
    engine = served_engine(served, measurement.kv_tokens)
    formulas = costs(Setting(engine, [model_turns(stretch, tokens)], shared_lines))
    for schedule in SCHEDULES:
        prompts = [tokens(prompt) for prompt in prompts_of(stretch, schedule, tokens)]
        found = prefills(prompts, measurement.block_tokens, fresh=schedule == "rebuild_all")
        predicted = predicted_seconds(served, found)
        for turn, sent in enumerate(measurement.sent[run].get(schedule, ())):
            yield Turn(
                run,
                schedule,
                turn + 1,
                sent.prompt_tokens,
                sent.uncached_tokens,
                found[turn].uncached_tokens,
                sent.computed_tokens,
                sent.queried_tokens,
                sent.hit_tokens,
                _milliseconds(sent.ttft_seconds),
                _milliseconds(predicted[turn]),
                _milliseconds(served.fixed_seconds + formulas[schedule][turn].ttft),
            )


def gains(rows: Sequence[Turn], measurement: Measurement) -> dict[str, dict[str, float]]:
    """By way of counting, then by schedule: how many times the mean of `admit` the mean of the schedule is.

    Of seconds per turn in the paper's setting (`turn`), otherwise of the time to the first token; `exact_here`,
    `predicted` and `measured` over the runs that were sent under the schedule.
    """
    runs = [model_turns(stretch, measurement.tokens) for stretch in measurement.stretches]
    here = Setting(served_engine(measurement.served, measurement.kv_tokens), runs, shared_lines)
    settings, fixed = paper_settings(), measurement.served.fixed_seconds
    measured = [_over_admit([row for row in rows if row.run == run], "ttft_ms") for run in range(len(runs))]
    return {
        "paper_gb10_turn": turn_ratios(settings["paper"]),
        "exact_gb10_turn": turn_ratios(settings["exact"]),
        "exact_gb10_ttft": ttft_ratios(settings["exact"]),
        "paper_here": ttft_ratios(replace(here, engine=replace(here.engine, accounting=PAPER)), fixed),
        "exact_here": _over_admit(rows, "formula_ms"),
        "predicted": _over_admit(rows, "predicted_ms"),
        "measured": _over_admit(rows, "ttft_ms"),
        "measured_least": {name: min(run[name] for run in measured if name in run) for name in SCHEDULES},
        "measured_most": {name: max(run[name] for run in measured if name in run) for name in SCHEDULES},
    }


def _over_admit(rows: Sequence[Turn], time: str) -> dict[str, float]:
    """By schedule, over the runs that were sent under it."""
    found = {}
    for name, each in _by_schedule(rows):
        runs = {row.run for row in each}
        same = [row for row in rows if row.schedule == "admit" and row.run in runs]
        found[name] = fmean(getattr(row, time) for row in each) / fmean(getattr(row, time) for row in same)
    return found


def _by_schedule(rows: Sequence[Turn]) -> list[tuple[str, list[Turn]]]:
    found = ((name, [row for row in rows if row.schedule == name]) for name in SCHEDULES)
    return [(name, each) for name, each in found if each]


def schedule_figures(rows: Sequence[Turn]) -> dict[str, dict[str, float]]:
    """By schedule: the mean turn, measured and predicted, tokens over all turns, and relative errors."""
    return {name: _schedule(each) for name, each in _by_schedule(rows)}


def _schedule(rows: Sequence[Turn]) -> dict[str, float]:
    totals = {
        name: sum(getattr(row, name) for row in rows) for name in Turn.__dataclass_fields__ if name.endswith("_tokens")
    }
    times = {
        name: round(fmean(getattr(row, name) for row in rows), 1) for name in ("ttft_ms", "predicted_ms", "formula_ms")
    }
    return {"turns": len(rows), **totals, **times, **errors(rows)}


def errors(rows: Sequence[Turn]) -> dict[str, float]:
    """Median and p90 of |predicted / measured - 1|."""
    found, formula = [row.error for row in rows], [row.formula_error for row in rows]
    return {
        "error_p50": _percentile(found, 50),
        "error_p90": _percentile(found, 90),
        "formula_error_p50": _percentile(formula, 50),
        "formula_error_p90": _percentile(formula, 90),
    }


def figures_of(measurement: Measurement) -> dict[str, Any]:
    """All figures; those at the top first."""
    rows = turn_rows(measurement)
    ratios = {
        name: {each: round(ratio, 4) for each, ratio in by_schedule.items()}
        for name, by_schedule in gains(rows, measurement).items()
    }
    top = {
        f"admit_over_{short}_{way}": ratios[key][name]
        for way, key in (("measured", "measured"), ("paper", "paper_gb10_turn"), ("exact", "exact_gb10_turn"))
        for name, short in TOP.items()
    }
    found = errors(rows)
    hooks = [sent.hook_seconds for run in measurement.sent for sent in run["admit"]]
    return {
        **top,
        "ttft_error_p50": found["error_p50"],
        "ttft_error_p90": found["error_p90"],
        "formula_error_p50": found["formula_error_p50"],
        "formula_error_p90": found["formula_error_p90"],
        "hook_ms_mean": _milliseconds(fmean(hooks)),
        "served": asdict(measurement.served),
        "runs": [_run(stretch, measurement.tokens) for stretch in measurement.stretches],
        "gains": ratios,
        "schedules": schedule_figures(rows),
        "columns": list(Turn.__dataclass_fields__),
        "turns": [list(asdict(row).values()) for row in rows],
    }


def _run(stretch: Stretch, tokens: Tokens) -> dict[str, Any]:
    whole, kept = len(tokens(stretch.whole)), len(tokens(stretch.shortened))
    return {
        "id": stretch.run_id,
        "turns": len(stretch.ends),
        "first_tokens": len(tokens(stretch.prompt(0, 0))),
        "last_tokens": whole,
        "last_tokens_kept": kept,
        "budget_tokens": least_budget(stretch, tokens),
    }


def _milliseconds(seconds: float) -> float:
    return round(1e3 * seconds, 1)


def _percentile(values: Sequence[float], percent: float) -> float:
    return round(float(np.percentile(values, percent)), 4)
