"""The tables of bench/schedules.py, made of its figures."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean
from typing import Any

from stored import markdown

SCHEDULES = {
    "none": "nothing removed",
    "admit": "admit",
    "in_place": "delete in place",
    "wall": "wall at the budget",
    "rebuild_all": "rebuild all, every turn",
}
GAINS = {
    "paper_gb10_turn": "`paper`, GB10, turn",
    "exact_gb10_turn": "`exact`, GB10, turn",
    "exact_gb10_ttft": "`exact`, GB10, TTFT",
    "paper_here": "`paper`, here, TTFT",
    "exact_here": "`exact`, here, TTFT",
    "measured": "measured here, TTFT",
}


def runs(figures: dict[str, Any]) -> str:
    """The recorded runs."""
    return markdown(
        ("run", "turns", "first prompt", "last prompt", "of it removed", "budget"),
        (
            (
                run["id"],
                str(run["turns"]),
                f"{run['first_tokens']:,}",
                f"{run['last_tokens']:,}",
                f"{1 - run['last_tokens_kept'] / run['last_tokens']:.1%}",
                f"{run['budget_tokens']:,}",
            )
            for run in figures["runs"]
        ),
    )


def tokens(figures: dict[str, Any]) -> str:
    """Every schedule's tokens, as answers and the engine's counters have them, and as predicted."""
    keys = ("prompt_tokens", "uncached_tokens", "predicted_uncached_tokens", "computed_tokens", "hit_tokens")
    return markdown(
        ("schedule", "prompt tokens", "uncached", "predicted", "prefilled, by /metrics", "cache hits, by /metrics"),
        ((SCHEDULES[name], *(f"{line[key]:,}" for key in keys)) for name, line in figures["schedules"].items()),
    )


def times(figures: dict[str, Any]) -> str:
    """Every schedule's time to the first token, measured and predicted, and how far one is from the other."""
    shares = ("error_p50", "error_p90", "formula_error_p50", "formula_error_p90")
    return markdown(
        ("schedule", "TTFT ms, mean", "predicted", "error p50", "p90", "without blocks p50", "p90"),
        (
            (
                SCHEDULES[name],
                *(f"{line[key]:,.0f}" for key in ("ttft_ms", "predicted_ms")),
                *(f"{line[key]:.1%}" for key in shares),
            )
            for name, line in figures["schedules"].items()
        ),
    )


def by_turn(figures: dict[str, Any]) -> str:
    """TTFT of each turn, mean over the runs: measured / predicted."""
    turns = [dict(zip(figures["columns"], row, strict=True)) for row in figures["turns"]]
    numbers = sorted({turn["turn"] for turn in turns})

    def cell(number: int, schedule: str) -> str:
        found = [turn for turn in turns if (turn["turn"], turn["schedule"]) == (number, schedule)]
        return " / ".join(f"{fmean(turn[key] for turn in found):,.0f}" for key in ("ttft_ms", "predicted_ms"))

    rows = ((str(number), *(cell(number, schedule) for schedule in SCHEDULES)) for number in numbers)
    return markdown(("turn", *SCHEDULES.values()), rows)


def gains(figures: dict[str, Any]) -> str:
    """How many times as long as `admit` the other schedules take, by way of counting; measured with its range."""
    ratios = figures["gains"]
    least, most = ratios["measured_least"], ratios["measured_most"]

    def cells(schedule: str) -> Iterable[str]:
        for way in GAINS:
            span = f" ({least[schedule]:.2f} to {most[schedule]:.2f})" if way == "measured" else ""
            yield f"{ratios[way][schedule]:.2f}{span}"

    others = [name for name in SCHEDULES if name != "admit"]
    return markdown(("over admit", *GAINS.values()), ((SCHEDULES[name], *cells(name)) for name in others))


def capacity(figures: dict[str, Any]) -> str:
    """How many runs the KV cache holds at their last turn."""
    held = figures["capacity"]
    return markdown(
        (f"{held['kv_blocks'] * held['block_tokens']:,} tokens of KV cache", "plugin off", "plugin on"),
        (
            ("tokens of the mean run", *(f"{held[f'mean_tokens_{state}']:,.0f}" for state in ("off", "on"))),
            ("such runs that fit, counted", *(str(held[f"mean_runs_{state}"]) for state in ("off", "on"))),
            *(
                (words, *(f"{held['tried'][state][key]:,}" for state in ("off", "on")))
                for words, key in (
                    (f"tokens of {held['tried_run']}", "prompt_tokens"),
                    ("copies that fit, counted", "counted"),
                    ("asked for at once", "asked"),
                    ("answering when the first was done", "answering"),
                    ("begun by then", "begun"),
                    ("most that ran, by the engine's gauge", "running"),
                    ("most that waited", "waiting"),
                )
            ),
        ),
    )


MAKERS = {
    "runs": runs,
    "tokens": tokens,
    "times": times,
    "turns": by_turn,
    "gains": gains,
    "capacity": capacity,
}


def tables(figures: dict[str, Any]) -> str:
    """All of them."""
    return "\n\n".join(make(figures) for make in MAKERS.values())
