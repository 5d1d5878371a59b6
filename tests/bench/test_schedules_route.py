"""bench/schedules_route.py: what `lam-vllm model` says of a measured engine, beside what was kept."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from lam_vllm.performance_model.model import LLAMA_3_1_8B
from lam_vllm.performance_model.served import Served, ttft_seconds
from lam_vllm.types import Message

sys.path.append(str(Path(__file__).parents[2] / "bench"))  # the benchmarks import one another by name

from schedules_prompts import Stretch
from schedules_route import calibrated_engine, errors, measured, modelled

ENGINE = Served(0.02, 1.5e-3, 2e-7, 0.03, 1e-6, "made up")


def tokens(messages: list[Message]) -> list[int]:
    """Each character is a token."""
    return [ord(character) for message in messages for character in message["content"]]


def test_every_turn_takes_what_the_coefficients_say() -> None:
    whole = tuple({"role": role, "content": text} for role, text in (("user", "task"), ("tool", "long result")))
    kept = ({"role": "user", "content": "task"}, {"role": "tool", "content": "long"})
    stretch = Stretch("a run", "somewhere", (1, 2), whole, kept)
    engine = calibrated_engine(asdict(ENGINE), LLAMA_3_1_8B)
    found = modelled(engine, [stretch], tokens)  # type: ignore[arg-type]
    deciding = 1e3 * 11 / engine.device.exact_rate.value
    assert found[0, "none", 2] == pytest.approx(1e3 * ttft_seconds(ENGINE, 11, 4))
    assert found[0, "admit", 2] == pytest.approx(1e3 * ttft_seconds(ENGINE, 4, 4) + deciding)
    assert found[0, "rebuild_all", 2] == pytest.approx(1e3 * ttft_seconds(ENGINE, 15, 0) + deciding)


def test_errors_are_by_schedule_and_of_all() -> None:
    kept = {"columns": ["run", "schedule", "turn", "ttft_ms"], "turns": [[0, "none", 1, 10.0], [0, "admit", 1, 20.0]]}
    seen = measured(kept)
    found = dict(errors({(0, "none", 1): 11.0, (0, "admit", 1): 15.0, (0, "wall", 1): 1.0}, seen))
    assert found["none"] == [pytest.approx(0.1)] and found["admit"] == [0.25] and found["wall"] == []
    assert found["all"] == [pytest.approx(0.1), 0.25]
