"""Two arms of attempts, the plugin off and on, as figures with intervals."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from agent_attempts import Attempt
from wording_table import wilson

DRAWS = 2_000
SEED = 0
FEW_TASKS = 10
Measure: TypeAlias = Callable[[Sequence[Attempt]], float | None]
Pair: TypeAlias = tuple[list[Attempt], list[Attempt]]
"""The attempts at one task, off and on."""


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def success_rate(attempts: Sequence[Attempt]) -> float | None:
    return _mean([attempt.success for attempt in attempts])


def reread_rate(attempts: Sequence[Attempt]) -> float | None:
    """Of the spans removed in all attempts, the share whose text was read again."""
    found = [attempt.rereading for attempt in attempts if attempt.rereading is not None]
    removed = sum(one.removed for one in found)
    return sum(one.again for one in found) / removed if removed else None


MEASURES: dict[str, Measure] = {
    "success_rate": success_rate,
    "reread_rate": reread_rate,
    "removed_spans": lambda arm: _mean([one.rereading.removed if one.rereading else None for one in arm]),
    "turns": lambda arm: _mean([one.turns for one in arm]),
    "prompt_tokens": lambda arm: _mean([one.usage.prompt for one in arm]),
    "cached_tokens": lambda arm: _mean([one.usage.cached for one in arm]),
    "completion_tokens": lambda arm: _mean([one.usage.completion for one in arm]),
}


def figures(off: Sequence[Attempt], on: Sequence[Attempt]) -> dict[str, Any]:
    """Every measure of both arms, and on less off with its 95% interval, over the tasks that both arms have.

    Attempts at one task are alike, so that the interval draws tasks, with all of their attempts, again (percentile
    bootstrap, `DRAWS` draws by one seed); None where a measure is not there, or not in every draw. `wilson_95` of the
    success rate takes attempts for independent: it is too narrow where tasks differ.
    """
    tasks = by_task(off, on)
    arms = [[attempt for pair in tasks.values() for attempt in pair[arm]] for arm in (0, 1)]
    lines: dict[str, dict[str, Any]] = {}
    for name, measure in MEASURES.items():
        values = [measure(arm) for arm in arms]
        lines[name] = {
            "off": values[0],
            "on": values[1],
            "difference": difference(list(tasks.values()), measure),
            "interval_95": bootstrap(list(tasks.values()), measure),
        }
    lines["success_rate"]["wilson_95"] = [_wilson(arm) for arm in arms]
    return {"tasks": len(tasks), "attempts": [len(arm) for arm in arms], "measures": lines}


def by_task(off: Sequence[Attempt], on: Sequence[Attempt]) -> dict[str, Pair]:
    """The attempts at each task that both arms tried."""
    tasks: defaultdict[str, Pair] = defaultdict(lambda: ([], []))
    for arm, attempts in enumerate((off, on)):
        for attempt in attempts:
            tasks[attempt.task][arm].append(attempt)
    return {task: pair for task, pair in tasks.items() if pair[0] and pair[1]}


def difference(tasks: Sequence[Pair], measure: Measure) -> float | None:
    """The measure of all attempts with the plugin on, less that of all with it off."""
    off, on = (measure([attempt for pair in tasks for attempt in pair[arm]]) for arm in (0, 1))
    return None if off is None or on is None else on - off


def bootstrap(tasks: Sequence[Pair], measure: Measure) -> tuple[float, float] | None:
    """The 95% percentile interval of `difference` over tasks drawn with replacement."""
    if not tasks or difference(tasks, measure) is None:
        return None
    chosen = random.Random(SEED)
    drawn = [difference(chosen.choices(tasks, k=len(tasks)), measure) for _ in range(DRAWS)]
    known = sorted(value for value in drawn if value is not None)
    if len(known) < DRAWS:
        return None
    return known[int(0.025 * DRAWS)], known[int(0.975 * DRAWS) - 1]


def print_report(report: dict[str, Any]) -> None:
    attempts = report["attempts"]
    print(f"{report['tasks']} tasks, {attempts[0]} attempts with the plugin off, {attempts[1]} with it on")
    if report["tasks"] < FEW_TASKS:
        print(f"FEWER THAN {FEW_TASKS} TASKS: this shows that the benchmark works, and nothing about any model.")
    print("\n| | off | on | on - off | 95% interval |\n|---|---:|---:|---:|---:|")
    for name, line in report["measures"].items():
        interval = line["interval_95"]
        between = "-" if interval is None else f"{_written(interval[0])} to {_written(interval[1])}"
        cells = (_written(line[key]) for key in ("off", "on", "difference"))
        print(f"| {name.replace('_', ' ')} | {' | '.join(cells)} | {between} |")


def _wilson(attempts: Sequence[Attempt]) -> tuple[float, float] | None:
    known = [attempt.success for attempt in attempts if attempt.success is not None]
    return wilson(sum(known), len(known)) if known else None


def _written(value: float | None) -> str:
    if value is None:
        return "not recorded"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
