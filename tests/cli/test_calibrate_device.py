"""`lam-vllm calibrate device`: what is asked of a server, what is written, that `model` reads it, what is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from lam_vllm.cli import app
from lam_vllm.commands.calibrate_device import Options, measure_engine, with_engine
from lam_vllm.encoders.base import BatchEncoder
from lam_vllm.evaluation.live.client import Client
from lam_vllm.evaluation.live.probing import ANSWER_TOKENS, GROWING, REQUESTS, probe, served_model
from lam_vllm.performance_model.calibrate import effective_prefill_rate
from lam_vllm.performance_model.presets import GB10, find_device
from tests.cli.stand_in import BLOCK_TOKENS, StandIn, stand_in
from tests.conftest import measured_before

MODEL = str(Path(__file__).parents[2] / ".models/smollm2")
LONGEST = 2_048


def described(**change: Any) -> dict[str, Any]:
    return {"id": "served", "root": MODEL, "max_model_len": 4_096} | change


@pytest.fixture
def server() -> Iterator[StandIn]:
    with stand_in(StandIn(described())) as running:
        yield running


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["calibrate", "device", *map(str, arguments)])


def test_every_constant_is_measured_or_says_why_not_and_the_model_takes_them(
    tmp_path: Path, encoder: BatchEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(measured_before(encoder, tmp_path / "cache")))
    out = tmp_path / "mine.json"
    with stand_in(StandIn(described(), key="sesame")) as server:
        asking = ("--url", server.url, "--api-key", "sesame", "--longest-tokens", LONGEST, "--rounds", 1)
        done = run(*asking, "--tokenizer", MODEL, "--encoder", "minilm", "--out", out, "--name", "mine")
    assert done.exit_code == 0, done.output
    device = find_device(str(out))
    assert device.name == "mine" and device.served is not None
    kinds = {name: each.kind for name, each in device.constants.items()}
    assert set(kinds.values()) == {"measured"}
    rates = [float(each) for each in re.findall(r"\d\S*(?= in\b| out\b)", device.codec_rate.source)]
    assert len(rates) == 3 and min(rates) > 1e5, "out of dense streams, and both ways of fixed ones"
    measured = [each.source for each in device.constants.values() if each.kind == "measured"]
    assert all(source.startswith("lam-vllm calibrate device") for source in [*measured, device.served.source])
    assert "error of the fit: TTFT" in device.served.source and device.served.source in done.output

    modelled = CliRunner().invoke(app, ["model", "--device", str(out), "--model", MODEL, "--json"])
    assert modelled.exit_code == 0, modelled.output


def test_prompts_grow_behind_what_is_cached_and_share_nothing_else(server: StandIn) -> None:
    client = Client(server.url)
    timings = probe(client, served_model(client), LONGEST, rounds=1)
    prompts, cached = server.prompts[1:], server.cached[1:]  # the first one only counts tokens
    assert len(timings) == len(prompts) == REQUESTS
    place = 0
    for shares in GROWING:
        for before, share in zip((0, *shares), shares, strict=False):
            prompt, timing = prompts[place], timings[place]
            assert timing.context_tokens == len(prompt) // 4
            assert timing.context_tokens == pytest.approx(share * 0.94 * LONGEST, rel=0.15, abs=16)
            assert timing.cached_tokens == cached[place]
            earlier = len(prompts[place - 1]) // 4 if before else 0
            assert timing.cached_tokens == earlier // BLOCK_TOKENS * BLOCK_TOKENS
            place += 1
    assert max(each.context_tokens for each in timings) <= LONGEST


def test_times_run_from_sending_to_the_first_text_and_from_text_to_text(server: StandIn) -> None:
    server.fixed_seconds, server.step_seconds = 0.01, 0.002
    client, steps = Client(server.url), ANSWER_TOKENS - 1
    timings = probe(client, served_model(client), LONGEST, rounds=1)
    for timing in timings:
        prefill = 0.01 + 2e-6 * timing.uncached_tokens
        assert timing.ttft_seconds >= prefill
        assert timing.ttft_seconds + steps * timing.step_seconds >= prefill + steps * 0.002
    # Of one request alone the steps look shorter where the client was told late of the first text.
    assert median(each.step_seconds for each in timings) >= 0.002


def test_an_engine_gives_rates_of_its_own_in_place_of_the_machines(server: StandIn) -> None:
    engine = measure_engine(Options(url=server.url, longest_tokens=LONGEST, rounds=1))
    device = with_engine(GB10, *engine)
    assert device.served is not None
    changed = {name for name, each in device.constants.items() if each != GB10.constants[name]}
    assert changed == {"prefill_efficiency", "memory_bandwidth"}
    assert device.prefill_rate == pytest.approx(effective_prefill_rate(device.served, *engine))
    assert "triad here: 2.374e+11" in device.memory_bandwidth.source


def test_a_server_that_is_faster_than_this_machine_runs_elsewhere(server: StandIn) -> None:
    slow = replace(GB10, matrix_rate=replace(GB10.matrix_rate, value=1.0))
    device = with_engine(slow, *measure_engine(Options(url=server.url, longest_tokens=LONGEST, rounds=1)))
    assert device.prefill_efficiency.value == 1.0 and device.matrix_rate.value > 1.0
    assert "faster than products are here" in device.matrix_rate.source


def test_every_round_asks_everything_anew(server: StandIn) -> None:
    client = Client(server.url)
    timings = probe(client, served_model(client), 256, rounds=3)
    assert len(timings) == REQUESTS and len(set(server.prompts)) == 3 * REQUESTS + 1


@pytest.mark.parametrize(
    ("change", "model", "words"),
    [
        ({"tells_cached_tokens": False}, {}, "--enable-prompt-tokens-details"),
        ({"answers": False}, {}, "an answer of 9 tokens came without any"),
        ({"key": "sesame"}, {}, "401"),
        ({}, {"max_model_len": None}, "no max_model_len: is this vLLM"),
        ({}, {"root": "nobody/knows"}, "model: 'nobody/knows' is not allowed"),
        ({}, {"max_model_len": 2_000}, "longest_tokens: 2048 .*256 to the 1,991 that served holds"),
    ],
)
def test_a_server_that_cannot_be_measured_is_refused(
    tmp_path: Path, change: dict[str, Any], model: dict[str, Any], words: str
) -> None:
    whole = {name: value for name, value in described(**model).items() if value is not None}
    with stand_in(StandIn(whole, **change)) as server:
        done = run("--url", server.url, "--longest-tokens", LONGEST, "--rounds", 1, "--out", tmp_path / "mine.json")
    assert done.exit_code == 2
    assert re.search(words, done.output)
    assert not (tmp_path / "mine.json").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--model", MODEL), "model: .*nothing without --url"),
        (("--url", "ftp://somewhere"), "url: 'ftp://somewhere' is not allowed"),
        (("--out", "no/such/folder/mine.json"), "no such folder"),
        (("--rounds", "0", "--url"), "rounds: 0 is not allowed; allowed: an integer of at least 1"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_measured(
    arguments: tuple[str, ...], words: str, server: StandIn
) -> None:
    done = run(*arguments, *([server.url] if arguments[-1] == "--url" else []))
    assert done.exit_code == 2
    assert re.search(words, done.output)
    assert not server.prompts
