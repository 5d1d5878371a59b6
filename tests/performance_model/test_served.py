"""What was measured of a served model stands in for the formulas, for that model and for no other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lam_vllm.performance_model.accounting import PAPER
from lam_vllm.performance_model.break_even import free_prefill_tokens
from lam_vllm.performance_model.compaction import shared_lines
from lam_vllm.performance_model.engine import Engine
from lam_vllm.performance_model.model import LLAMA_3_1_8B
from lam_vllm.performance_model.presets import GB10, find_device
from lam_vllm.performance_model.schedules import admit, in_place, suffix
from lam_vllm.performance_model.served import Served, decode_step_seconds, ttft_seconds
from lam_vllm.performance_model.turn import turn_cost
from lam_vllm.performance_model.workload import Turn

SERVED = Served(0.02, 5e-4, 3e-8, 0.01, 1e-6, "a test")
MEASURED = replace(GB10, served=replace(SERVED, model=LLAMA_3_1_8B))
TUNED = replace(LLAMA_3_1_8B, name="a fine-tuned one", parameters=8.0303e9, active_parameters=8.0303e9)
DEEPER = replace(LLAMA_3_1_8B, layers=40)


def test_a_device_keeps_of_which_model_it_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(MEASURED.json()), encoding="utf-8")
    assert find_device(str(path)) == MEASURED


@given(st.integers(1, 4_000), st.integers(0, 300), st.integers(0, 60_000))
def test_a_turn_of_the_model_that_was_measured_goes_by_its_coefficients(new: int, decoded: int, cached: int) -> None:
    """TTFT is what `ttft_seconds` says of the same prefill, and a step what `decode_step_seconds` says of the mean."""
    cost = turn_cost(Engine(MEASURED, TUNED), new, decoded, cached + new + decoded)
    assert cost.ttft == pytest.approx(ttft_seconds(SERVED, new, cached))
    step = decode_step_seconds(SERVED, cached + new + decoded / 2)
    assert cost.weights + cost.kv_read == pytest.approx(decoded * step)
    assert cost.total == pytest.approx(cost.ttft + decoded * step)


@settings(deadline=None)
@given(st.integers(1, 4_000), st.integers(0, 2_000), st.integers(0, 2_000))
def test_of_an_engine_that_was_measured_admission_is_ahead_too(new: int, removed: int, stale: int) -> None:
    run = [Turn(new, 30, min(new, removed), min(stale, new - min(new, removed)) if removed else 0)] * 3
    early, late, whole = (
        schedule(Engine(MEASURED, LLAMA_3_1_8B), run, shared_lines) for schedule in (admit, suffix, in_place)
    )
    for one, two, three in zip(early, late, whole, strict=True):
        assert one.ttft <= two.ttft * (1 + 1e-9) and two.ttft <= three.ttft * (1 + 1e-9)
        assert one.fixed == two.fixed == three.fixed == SERVED.fixed_seconds, "once a request"
        assert three.reprefill == 0 or three.reprefill < three.ttft - SERVED.fixed_seconds


@pytest.mark.parametrize(
    ("engine", "why"),
    [
        (Engine(MEASURED, DEEPER), "another model"),
        (Engine(replace(GB10, served=SERVED), LLAMA_3_1_8B), "not known of which"),
        (Engine(MEASURED, LLAMA_3_1_8B, 1, PAPER), "the paper's accounting"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_else_a_turn_goes_by_the_formulas(engine: Engine, why: str) -> None:
    assert engine.served is None, why
    plain = replace(engine, device=GB10)
    assert turn_cost(engine, 500, 30, 20_000) == turn_cost(plain, 500, 30, 20_000)
    assert turn_cost(plain, 500, 30, 20_000).fixed == 0
    assert free_prefill_tokens(engine) == free_prefill_tokens(plain)


def test_reading_the_weights_is_part_of_the_fixed_time_that_was_measured() -> None:
    measured = Engine(MEASURED, LLAMA_3_1_8B)
    assert free_prefill_tokens(measured) == 0 < free_prefill_tokens(Engine(GB10, LLAMA_3_1_8B))
    assert measured.prefill_seconds(1) == SERVED.seconds_per_token
    assert replace(measured, batch=4).weight_seconds(4) == pytest.approx(SERVED.decode_fixed_seconds / 4)
