"""The coefficients of an engine out of timed requests: exact data give them back, and no data give what cannot be."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lam_vllm.errors import InputFileError, OptionError
from lam_vllm.performance_model.calibrate import (
    Timing,
    effective_bandwidth,
    effective_prefill_rate,
    fit,
    fit_served,
    middle_timings,
    relative_errors,
)
from lam_vllm.performance_model.device import read_device
from lam_vllm.performance_model.engine import Engine
from lam_vllm.performance_model.model import LLAMA_3_1_8B
from lam_vllm.performance_model.presets import GB10, find_device
from lam_vllm.performance_model.served import Served, decode_step_seconds, prefill_pairs, ttft_seconds

GRID = [(uncached, cached) for uncached in (64, 512, 2048) for cached in (0, 1024, 4096)]
SERVED = Served(0.02, 5e-4, 3e-8, 0.01, 1e-6, "a test")


def timed(served: Served, grid: Sequence[tuple[int, int]] = GRID) -> list[Timing]:
    """Requests that take exactly what these coefficients say."""
    return [
        Timing(new, old, ttft_seconds(served, new, old), decode_step_seconds(served, new + old)) for new, old in grid
    ]


def maybe(low: float, high: float) -> st.SearchStrategy[float]:
    return st.just(0.0) | st.floats(low, high)


engines = st.builds(
    Served,
    st.floats(1e-3, 1),
    maybe(1e-5, 1e-2),
    maybe(1e-9, 1e-6),
    st.floats(1e-3, 1),
    maybe(1e-7, 1e-5),
    st.just("a test"),
)


@given(engines)
def test_exact_data_give_the_coefficients_back(served: Served) -> None:
    found = fit_served(timed(served), "a test")
    assert astuple(found)[:-2] == pytest.approx(astuple(served)[:-2], rel=1e-6, abs=1e-14)


def test_an_example_to_check_by_hand() -> None:
    """A request of 1,000 tokens behind 2,000: 20 ms, 500 ms for its tokens, 75 ms for 1,000 x 2,500 pairs."""
    assert prefill_pairs(1_000, 2_000) == 2_500_000
    assert ttft_seconds(SERVED, 1_000, 2_000) == pytest.approx(0.020 + 0.500 + 0.075)
    assert decode_step_seconds(SERVED, 3_000) == pytest.approx(0.013)


seconds = st.floats(1e-3, 10)


@given(
    st.lists(seconds, min_size=len(GRID), max_size=len(GRID)),
    st.tuples(st.floats(0, 1), st.floats(0, 1e-2), st.floats(0, 1e-5)),
)
def test_whatever_was_timed_no_coefficient_is_negative_and_none_allowed_fits_better(
    times: list[float], other: tuple[float, float, float]
) -> None:
    rows = [(1.0, float(new), prefill_pairs(new, old)) for new, old in GRID]

    def left(coefficients: Sequence[float]) -> float:
        errors = (np.asarray(rows) @ np.asarray(coefficients) - times) / times
        return float(np.square(errors).sum())

    found = fit(rows, times, "tokens")
    assert min(found) >= 0
    assert left(found) <= left(other) * (1 + 1e-9) + 1e-9


def test_of_several_rounds_the_median_counts_for_each_request_by_itself() -> None:
    def rounds(*seconds: float) -> list[Timing]:
        return [Timing(place, 0, each, 1.0) for place, each in enumerate(seconds)]

    middle = middle_timings([rounds(3, 20), rounds(1, 30), rounds(9, 10)])
    assert [(each.uncached_tokens, each.ttft_seconds) for each in middle] == [(0, 3), (1, 20)]


def test_a_time_that_falls_with_tokens_is_a_fixed_time() -> None:
    fixed, token = fit([(1.0, 10.0), (1.0, 20.0), (1.0, 30.0)], [1.0, 0.9, 0.8], "tokens")
    assert token == 0.0 and 0.8 < fixed < 1.0


def test_errors_are_relative_to_what_was_measured() -> None:
    timings = timed(SERVED)
    slow = replace(timings[0], ttft_seconds=2 * timings[0].ttft_seconds, step_seconds=timings[0].step_seconds / 2)
    ttft, steps = relative_errors(SERVED, [slow, *timings[1:]])
    assert (ttft[0], steps[0]) == pytest.approx((0.5, 1.0))
    assert max(ttft[1:] + steps[1:]) == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("timings", "words"),
    [
        ([], r"^timings: 0 "),
        (timed(SERVED)[:3], r"^timings: 3 .*more than the 3 coefficients"),
        (timed(SERVED)[:1] * 9, r"^timings: 9 .*differ in their uncached and cached tokens"),
        (timed(SERVED, [(64, 0), (64, 1024), (64, 2048), (64, 4096)]), r"^timings: 4 .*uncached and cached tokens"),
        (
            timed(SERVED, [(1, 4095), (1024, 3072), (2048, 2048), (4096, 0)]),
            r"^timings: 4 .*differ in their context tokens",
        ),
        ([replace(each, ttft_seconds=0.0) for each in timed(SERVED)], r"^seconds: 0\.0 .*above 0"),
        ([replace(each, step_seconds=-1.0) for each in timed(SERVED)], r"^seconds: -1\.0 .*above 0"),
        ([replace(each, step_seconds=float("nan")) for each in timed(SERVED)], "^seconds: nan"),
    ],
    ids=["none", "three", "all alike", "one length", "one context", "no time", "negative", "not a number"],
)
def test_timings_that_determine_nothing_are_refused(timings: list[Timing], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        fit_served(timings, "a test")


def test_an_engine_that_keeps_to_the_formulas_has_the_rates_of_its_device() -> None:
    engine, fixed = Engine(GB10, LLAMA_3_1_8B), 0.03
    token = 2 * LLAMA_3_1_8B.parameters / GB10.prefill_rate
    pair, step, read = engine.attention_seconds(1), engine.weight_seconds(1), engine.kv_read_seconds(1)
    served = Served(fixed, token, pair, step, read, "a test")
    timings = timed(served)
    assert effective_prefill_rate(served, LLAMA_3_1_8B, timings) == pytest.approx(GB10.prefill_rate)
    assert effective_bandwidth(served, LLAMA_3_1_8B, timings) == pytest.approx(GB10.memory_bandwidth.value)


def test_a_prefill_that_takes_no_time_has_no_rate() -> None:
    with pytest.raises(OptionError, match=r"^seconds of a prefill beyond its fixed part: 0\.0"):
        effective_prefill_rate(replace(SERVED, seconds_per_token=0, seconds_per_pair=0), LLAMA_3_1_8B, timed(SERVED))


def written(folder: Path, **change: Any) -> str:
    path = folder / "mine.json"
    path.write_text(json.dumps(replace(GB10, served=SERVED).json() | change), encoding="utf-8")
    return str(path)


def test_a_device_keeps_what_was_measured_of_its_engine(tmp_path: Path) -> None:
    device = find_device(written(tmp_path))
    assert device.served == SERVED
    assert device.constants == GB10.constants
    assert read_device(Path(written(tmp_path, served=None))) == GB10


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"speed": 1}, InputFileError, "served: expected an object with fixed_seconds, seconds_per_token"),
        ({"fixed_seconds": -1}, OptionError, "^fixed_seconds: -1 "),
        ({"seconds_per_pair": "few"}, OptionError, "^seconds_per_pair: 'few' "),
        ({"source": ""}, OptionError, "^source of what was served: '' .*not empty"),
        ({"model": "big"}, InputFileError, "served.model: expected an object with name, parameters"),
        ({"model": asdict(LLAMA_3_1_8B) | {"layers": "many"}}, OptionError, "^layers: 'many' .*above 0"),
    ],
)
def test_an_engine_that_cannot_be_is_refused(
    tmp_path: Path, change: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        find_device(written(tmp_path, served=asdict(SERVED) | change))
