"""Devices and amounts: that constants say where they come from, and what is refused with its value and the limit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lam_vllm.errors import InputFileError, OptionError
from lam_vllm.performance_model.accounting import EXACT, PAPER
from lam_vllm.performance_model.calibrate import Timing
from lam_vllm.performance_model.capacity import check_context, exhaust_turn, kv_capacity_tokens
from lam_vllm.performance_model.compaction import (
    llmlingua2,
    near_duplicates,
    near_duplicates_then_lines,
    nothing,
    repeated_lines,
    semdedup,
    shared_lines,
    stages,
    summarise_afresh,
    summarise_cached,
)
from lam_vllm.performance_model.device import Constant, read_device
from lam_vllm.performance_model.engine import Engine
from lam_vllm.performance_model.growth import arrival_next, snapshot_next, snapshot_steady_tokens
from lam_vllm.performance_model.invalidation import with_breaks
from lam_vllm.performance_model.model import LLAMA_3_1_8B
from lam_vllm.performance_model.model_config import find_model
from lam_vllm.performance_model.paper import paper_engine
from lam_vllm.performance_model.presets import A100_40GB, GB10, H100, H200, PRESETS, find_device
from lam_vllm.performance_model.schedules import turns_before_wall, wall_budget
from lam_vllm.performance_model.served import Served, decode_step_seconds, prefill_pairs, ttft_seconds
from lam_vllm.performance_model.turn import mean, rebuild_seconds, reprefill_seconds, turn_cost
from lam_vllm.performance_model.workload import Turn, removing, steady_run
from tests.performance_model.cells import TABLES


@pytest.mark.parametrize("device", PRESETS.values(), ids=lambda device: device.name)
def test_every_constant_says_where_it_comes_from(device: Any) -> None:
    for name, constant in device.constants.items():
        assert constant.source and constant.unit, name
        assert constant.kind != "printed" or device is GB10, "the paper measured GB10 alone"


def test_gb10_is_what_table_22_prints() -> None:
    printed = TABLES["table22_anchors_GB10"]
    assert GB10.memory_bandwidth.value == 1e9 * printed["triad_GB_s"]
    assert GB10.matrix_rate.value == 1e12 * printed["fp16_TFLOP_s"]
    balance = GB10.matrix_rate.value / GB10.memory_bandwidth.value
    assert balance == pytest.approx(printed["balance_FLOP_per_byte"], rel=0.01)
    assert GB10.memory_bandwidth.value / 273e9 == pytest.approx(printed["bandwidth_efficiency"], rel=0.001)


def test_faster_devices_are_faster() -> None:
    contexts = [
        turn_cost(Engine(device, LLAMA_3_1_8B), 598, 39, 20_000).total for device in (GB10, A100_40GB, H100, H200)
    ]
    assert contexts == sorted(contexts, reverse=True)


def test_a_device_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(H200.json()), encoding="utf-8")
    assert read_device(path) == H200 == find_device(str(path)) == find_device("h200")


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"memory": None}, InputFileError, "memory: expected an object with value, unit, source, kind"),
        ({"speed": 3}, InputFileError, "expected an object with name, memory_bandwidth"),
        ({"memory_bandwidth": {**GB10.json()["memory_bandwidth"], "value": 0}}, OptionError, "^memory_bandwidth: 0 "),
        ({"hash_rate": {**GB10.json()["hash_rate"], "value": -1.5}}, OptionError, r"^hash_rate: -1\.5 .*above 0"),
        ({"hash_rate": {**GB10.json()["hash_rate"], "kind": "felt"}}, OptionError, "^hash_rate: 'felt' .*measured"),
        (
            {"prefill_efficiency": {**GB10.json()["prefill_efficiency"], "value": 1.5}},
            OptionError,
            r"^prefill_efficiency: 1\.5",
        ),
        (
            {"memory_bandwidth": {**GB10.json()["memory_bandwidth"], "value": 237.4, "unit": "GB/s"}},
            OptionError,
            "^unit of memory_bandwidth: 'GB/s' .*allowed: B/s",
        ),
        (
            {"memory_bandwidth": {**GB10.json()["memory_bandwidth"], "value": 1e-300}},
            OptionError,
            "^memory_bandwidth: 1e-300 .*1e-09 to 1e\\+24 B/s",
        ),
        ({"hash_rate": {**GB10.json()["hash_rate"], "unit": 7}}, OptionError, "^hash_rate: 7 .*not empty"),
        ({"hash_rate": {**GB10.json()["hash_rate"], "source": ""}}, OptionError, "^hash_rate: '' .*not empty"),
        ({"hash_rate": {**GB10.json()["hash_rate"], "source": None}}, OptionError, "^hash_rate: None .*not empty"),
        ({"name": None}, OptionError, "^name: None .*not empty"),
        ({"served": []}, InputFileError, "served: expected an object with fixed_seconds"),
    ],
)
def test_a_device_that_cannot_be_is_refused(
    tmp_path: Path, change: dict[str, Any], error: type[Exception], words: str
) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(GB10.json() | change), encoding="utf-8")
    with pytest.raises(error, match=words):
        find_device(str(path))


@pytest.mark.parametrize("find", [find_model, find_device])
@pytest.mark.parametrize(
    ("text", "words"),
    [("[" * 100_000, "not a JSON file"), ("{", "not a JSON file"), ("[]", "expected"), ("1" * 2**21, "larger than")],
    ids=["deep", "cut off", "no object", "large"],
)
def test_a_file_that_is_no_object_is_refused(
    tmp_path: Path, find: Callable[[str], object], text: str, words: str
) -> None:
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputFileError, match=words):
        find(str(path))


@pytest.mark.parametrize("find", [find_model, find_device])
@pytest.mark.parametrize("name", ["x" * 5_000, "a\0b"], ids=["long", "null"])
def test_a_name_that_no_file_can_have_is_refused(find: Callable[[str], object], name: str) -> None:
    with pytest.raises(OptionError):
        find(name)


EXACTLY = Engine(GB10, LLAMA_3_1_8B)
SERVED = Served(0.1, 1e-4, 1e-9, 0.01, 1e-6, "a test")
OF_TOKENS: dict[str, list[Callable[[Engine, float], object]]] = {
    "compaction": [
        nothing,
        near_duplicates,
        near_duplicates_then_lines,
        repeated_lines,
        shared_lines,
        semdedup,
        llmlingua2,
        summarise_cached(10),
        summarise_afresh(10),
        stages,
        rebuild_seconds,
        Engine.prefill_seconds,
        Engine.kv_read_seconds,
        Engine.attention_seconds,
        Engine.read_seconds,
    ],
    "growth": [
        lambda _, value: snapshot_next(value, 1, 0.5),
        lambda _, value: snapshot_next(1, value, 0.5),
        lambda _, value: snapshot_steady_tokens(value, 0.5),
        lambda _, value: arrival_next(value, 1, 0.5),
        lambda _, value: arrival_next(1, value, 0.5),
        lambda _, value: exhaust_turn(value, 1),
    ],
    "served": [
        lambda _, value: prefill_pairs(1, value),
        lambda _, value: ttft_seconds(SERVED, value, 1),
        lambda _, value: decode_step_seconds(SERVED, value),
        lambda _, value: Timing(value, 1, 1.0, 1.0),
        lambda _, value: Timing(1, value, 1.0, 1.0),
    ],
}


@pytest.mark.parametrize("kind", OF_TOKENS)
@pytest.mark.parametrize("value", [-1, -1e-9, float("nan"), float("inf")])
def test_no_formula_takes_what_is_no_amount(kind: str, value: float) -> None:
    for formula in OF_TOKENS[kind]:
        with pytest.raises(OptionError, match=f"{value:g} .*a finite number of at least 0"):
            formula(EXACTLY, value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Constant(0, "B/s", "", "measured"), "^value of a constant in B/s: 0 "),
        (lambda: Constant(float("nan"), "B/s", "", "measured"), "nan"),
        (lambda: replace(LLAMA_3_1_8B, layers=0), "^layers: 0 "),
        (lambda: replace(LLAMA_3_1_8B, active_parameters=9e9), "^active_parameters: .*8,030,000,000"),
        (lambda: replace(LLAMA_3_1_8B, active_parameters=7e9), "^active_parameters: .*exactly"),
        (lambda: replace(LLAMA_3_1_8B, experts_per_token=2), "^experts_per_token: 2 .*at most the 1"),
        (lambda: replace(LLAMA_3_1_8B, parameters=float("inf")), "^parameters: inf "),
        (lambda: Engine(GB10, LLAMA_3_1_8B, 0), "^batch: 0 "),
        (lambda: Engine(GB10, LLAMA_3_1_8B, 1.5), r"^batch: 1\.5 .*an integer of at least 1"),  # type: ignore[arg-type]
        (lambda: EXACTLY.weight_seconds(0), "^batch: 0 "),
        (lambda: turn_cost(EXACTLY, -1, 39, 100), "^prefilled_tokens: -1 "),
        (lambda: turn_cost(EXACTLY, 1, -39, 100), "^decoded_tokens: -39 "),
        (lambda: turn_cost(EXACTLY, 1, 1, -100), "^context_tokens: -100 "),
        (lambda: turn_cost(EXACTLY, 598, 39, 636), "^context_tokens: 636 .*637 that are prefilled and decoded"),
        (lambda: turn_cost(EXACTLY, float("inf"), 39, 636), "^prefilled_tokens: inf "),
        (lambda: reprefill_seconds(EXACTLY, 10, 101, 100), "^stale_tokens: 101 .*100 that are cached"),
        (lambda: with_breaks(EXACTLY, [Turn(10, 1)], nothing, {1: 0}), "^turn: 1 .*0 to 0"),
        (lambda: with_breaks(EXACTLY, [Turn(10, 1)] * 2, nothing, {1: 12}), "^intact tokens: 12 .*the 11 that turn 1"),
        (lambda: turn_cost(EXACTLY, 598, 39, 131_073), "^context_tokens: 131073 .*131,072, the window of Llama"),
        (lambda: check_context(replace(EXACTLY, batch=32), 32_000), "^context_tokens: 32000 .*24,247, which fit 32"),
        (lambda: find_device("abacus"), "^device: 'abacus' .*GB10, A100-40GB, H100, H200"),
        (lambda: find_model("nothing"), "^model: 'nothing' .*Llama-3.1-8B, a config.json"),
        (lambda: Turn(10, 1, removed_tokens=11), "^removed_tokens: 11 .*10 of tool output"),
        (lambda: Turn(10, 1, removed_tokens=6, other_tokens=5), "^removed_tokens: 6 .*5 of tool output"),
        (lambda: Turn(10, 1, other_tokens=11), "^other_tokens: 11 .*10 that arrive"),
        (lambda: Turn(10, 1, stale_tokens=1), "^stale_tokens: 1 "),
        (lambda: Turn(-1, 1), "^arriving_tokens: -1 "),
        (lambda: steady_run(0, 10, 1), "^turns: 0 "),
        (lambda: steady_run(2.5, 10, 1), r"^turns: 2\.5 .*an integer of at least 1"),  # type: ignore[arg-type]
        (lambda: steady_run(10_001, 10, 1), "^turns: 10001 .*at most 10,000"),
        (lambda: steady_run(1, 0, 0), "^turn_tokens: 0 .*above 0"),
        (lambda: steady_run(1, 10, 1, start_tokens=float("nan")), "^arriving_tokens: nan "),
        (lambda: Turn(1e300, 1), r"^arriving_tokens: 1e\+300 .*at most 1,000,000,000"),
        (lambda: steady_run(1, 10, 11), "^decoded_tokens: 11 .*10 that a turn adds"),
        (lambda: removing([Turn(1, 1)], 1.5), r"^removal: 1\.5 "),
        (lambda: mean([]), "^turns: 0 "),
        (lambda: summarise_cached(0.5), r"^ratio: 0\.5 "),
        (lambda: summarise_afresh(0), "^ratio: 0 "),
        (lambda: snapshot_steady_tokens(10, 0), "^removal: 0 "),
        (lambda: arrival_next(10, 10, 2), "^removal: 2 "),
        (lambda: wall_budget(EXACTLY, [Turn(50, 5)] * 2, summarise_cached(10), 100, 1.0), r"^removal: 1\.0 "),
        (lambda: wall_budget(EXACTLY, [], nothing, -100), "^budget_tokens: -100 .*above 0"),
        (lambda: turns_before_wall([], float("nan")), "^budget_tokens: nan .*above 0"),
        (
            lambda: wall_budget(EXACTLY, [Turn(50, 5)] * 2, summarise_cached(10), 100),
            "^budget_tokens: 100 .*110 for turn 2",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_its_value_and_the_limit(make: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        make()


def test_a_model_that_is_larger_than_the_memory_is_refused() -> None:
    large = replace(LLAMA_3_1_8B, name="large", parameters=70e9, active_parameters=70e9)
    with pytest.raises(OptionError, match=r"^model: 'large \(140 GB\)' .*36.8 GB of A100-40GB"):
        kv_capacity_tokens(Engine(A100_40GB, large))


def test_the_papers_batch_of_32_does_not_fit_its_own_device() -> None:
    """Table 7 has 32K and 128K at batch 32; its accounting prints them, the exact one refuses."""
    assert kv_capacity_tokens(paper_engine(32)) == pytest.approx(26_700, rel=0.001)
    turn_cost(paper_engine(32), 598, 39, 128_000)
    for context in (32_000, 128_000):
        with pytest.raises(OptionError, match="^context_tokens: "):
            turn_cost(replace(paper_engine(32), accounting=EXACT), 598, 39, context)


def test_a_context_that_does_not_grow_is_never_full() -> None:
    assert exhaust_turn(1_000, 0) is None
    assert exhaust_turn(1_000, 100) == 10 and exhaust_turn(1_000, 99) == 11
    assert PAPER.memory_share == 1.0
