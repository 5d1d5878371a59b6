"""How far `lam-vllm model --device` is from the kept measurements of bench/schedules.py, on an engine that
`lam-vllm calibrate device` has measured; the turns are those of the model: of a prompt all is cached that was sent
before, without blocks. No server is needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from corpus_data import SERVED_MODEL, corpus_runs, served_tokens
from schedules import chat_tokens
from schedules_model import Setting, costs
from schedules_prompts import Stretch, Tokens, model_turns, stretches
from schedules_tables import SCHEDULES
from stored import markdown, stored

from lam_vllm.performance_model.compaction import shared_lines
from lam_vllm.performance_model.engine import Engine
from lam_vllm.performance_model.model import Model
from lam_vllm.performance_model.model_config import find_model
from lam_vllm.performance_model.presets import GB10
from lam_vllm.performance_model.served import Served

Place = tuple[int, str, int]
"""Number of the run, schedule, turn from 1."""


def calibrated_engine(coefficients: Mapping[str, Any], model: Model) -> Engine:
    """The engine of a device file with these coefficients of this model; its other constants do not enter TTFT."""
    return Engine(replace(GB10, served=Served(**{**coefficients, "model": model})), model)


def modelled(engine: Engine, found: Sequence[Stretch], tokens: Tokens) -> dict[Place, float]:
    """TTFT in milliseconds of every turn."""
    return {
        (run, schedule, turn): 1e3 * cost.ttft
        for run, stretch in enumerate(found)
        for schedule, each in costs(Setting(engine, [model_turns(stretch, tokens)], shared_lines)).items()
        for turn, cost in enumerate(each, 1)
    }


def measured(kept: Mapping[str, Any]) -> dict[Place, float]:
    """TTFT in milliseconds of every turn that was sent."""
    rows = (dict(zip(kept["columns"], row, strict=True)) for row in kept["turns"])
    return {(row["run"], row["schedule"], row["turn"]): row["ttft_ms"] for row in rows}


def errors(model: Mapping[Place, float], seen: Mapping[Place, float]) -> Iterator[tuple[str, list[float]]]:
    """|modelled / measured - 1| of every turn: by schedule, and of `all`."""
    for name in (*SCHEDULES, "all"):
        yield name, [abs(model[place] / time - 1) for place, time in seen.items() if name in (place[1], "all")]


def main() -> None:
    kept, tokens = stored("schedules"), chat_tokens()
    found = stretches(corpus_runs(), 8, 5_000, 3, len(kept["runs"]), tokens, served_tokens())
    if [stretch.run_id for stretch in found] != [run["id"] for run in kept["runs"]]:
        raise SystemExit("the kept runs are not those that bench/schedules.py chooses by default")
    engine = calibrated_engine(kept["served"], find_model(str(SERVED_MODEL)))
    seen = measured(kept)
    figures = {
        name: {"turns": len(each), **{f"p{part}": round(float(np.percentile(each, part)), 4) for part in (50, 90)}}
        for name, each in errors(modelled(engine, found, tokens), seen)
    }
    rows = (
        (SCHEDULES.get(name, "all"), str(each["turns"]), *(f"{each[part]:.1%}" for part in ("p50", "p90")))
        for name, each in figures.items()
    )
    print(markdown(("schedule", "turns", "error of TTFT p50", "p90"), rows))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
