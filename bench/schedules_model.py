"""What the performance model says of the schedules: of every turn here, of ratios here and in the paper's setting."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from statistics import fmean

from corpus_data import SERVED_MODEL
from schedules_prompts import Prefill

from lam_vllm.performance_model.accounting import EXACT, PAPER
from lam_vllm.performance_model.compaction import Compaction, near_duplicates
from lam_vllm.performance_model.device import Constant
from lam_vllm.performance_model.engine import Engine
from lam_vllm.performance_model.forecast import comparable
from lam_vllm.performance_model.model import LLAMA_3_1_8B
from lam_vllm.performance_model.model_config import find_model
from lam_vllm.performance_model.paper import LAM_REMOVAL, paper_run
from lam_vllm.performance_model.presets import GB10
from lam_vllm.performance_model.schedules import (
    Costs,
    admit,
    in_place,
    no_compaction,
    suffix,
    wall_budget,
    wall_every_turn,
)
from lam_vllm.performance_model.served import Served, ttft_seconds
from lam_vllm.performance_model.workload import Turn


def predicted_seconds(served: Served, prefills: Sequence[Prefill]) -> list[float]:
    """TTFT of each turn. The time of the plugin, a thousandth of it, is left to `hook_seconds`."""
    return [ttft_seconds(served, each.uncached_tokens, each.cached_tokens) for each in prefills]


def served_engine(served: Served, kv_tokens: float) -> Engine:
    """The engine whose coefficients were fitted, as the model's schedules take one.

    The model has one rate of matrix products; here attention has its own. That ratio goes into the width of attention,
    the only place where it enters.
    """
    model = find_model(str(SERVED_MODEL))
    rate = 2 * model.active_parameters / served.seconds_per_token
    width = served.seconds_per_pair * rate / (4 * model.layers)
    memory = (model.weight_bytes + kv_tokens * model.kv_bytes_per_token) / EXACT.memory_share
    device = replace(
        GB10,
        name="the engine that was measured",
        matrix_rate=_fitted(rate, "FLOP/s"),
        prefill_efficiency=Constant(1.0, "1", "part of the fitted rate", "fitted"),
        memory_bandwidth=_fitted(model.weight_bytes / served.decode_fixed_seconds, "B/s"),
        memory=Constant(memory, "B", "blocks that the engine reports", "measured"),
    )
    return Engine(device, replace(model, attention_width=max(width, 1e-9)))


def _fitted(value: float, unit: str) -> Constant:
    return Constant(value, unit, "calibration prompts on the same server", "fitted")


@dataclass(frozen=True)
class Setting:
    """Runs that bring their deletion set, on an engine, and what deciding costs."""

    engine: Engine
    runs: Sequence[Sequence[Turn]]
    compaction: Compaction


def paper_settings() -> dict[str, Setting]:
    """Llama-3.1-8B on GB10, by accounting: the paper's 1,453 turns, and as many of them as the model's window holds."""
    run = paper_run(LAM_REMOVAL.value)
    engines = [Engine(GB10, LLAMA_3_1_8B, 1, accounting) for accounting in (PAPER, EXACT)]
    return {engine.accounting.name: Setting(engine, comparable(engine, [run]), near_duplicates) for engine in engines}


def least_budget(run: Sequence[Turn]) -> float:
    """The least budget under which `wall_budget` answers every turn: with fewer one is too long after all removal."""
    before = accumulate((turn.growth_tokens for turn in run), initial=0.0)
    return math.ceil(
        max(kept + turn.arriving_tokens + turn.decoded_tokens for kept, turn in zip(before, run, strict=False))
    )


def costs(setting: Setting) -> dict[str, Costs]:
    """The turns of all runs by schedule. Where the paper counts, both others prefill the whole cache every turn."""
    engine, compaction = setting.engine, setting.compaction
    paper = engine.accounting is PAPER
    schedules: dict[str, Callable[[Sequence[Turn]], Costs]] = {
        "none": lambda run: no_compaction(engine, run),
        "admit": lambda run: admit(engine, run, compaction),
        "in_place": lambda run: (in_place if paper else suffix)(engine, run, compaction),
        "wall": lambda run: (
            wall_every_turn(engine, run, compaction)
            if paper
            else wall_budget(engine, run, compaction, least_budget(run))
        ),
        "rebuild_all": lambda run: in_place(engine, run, compaction),
    }
    return {name: tuple(chain.from_iterable(map(schedule, setting.runs))) for name, schedule in schedules.items()}


def over_admit(seconds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """By schedule: how many times the mean of `admit` its mean is."""
    return {name: fmean(each) / fmean(seconds["admit"]) for name, each in seconds.items()}


def turn_ratios(setting: Setting) -> dict[str, float]:
    """`over_admit` of the seconds of whole turns."""
    return over_admit({name: [cost.total for cost in each] for name, each in costs(setting).items()})


def ttft_ratios(setting: Setting, fixed_seconds: float = 0.0) -> dict[str, float]:
    """`over_admit` of the seconds to the first token, of which `fixed_seconds` are no prefill."""
    return over_admit({name: [fixed_seconds + cost.ttft for cost in each] for name, each in costs(setting).items()})
