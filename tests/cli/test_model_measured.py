"""`lam-vllm model` on a device file that `lam-vllm calibrate device` has written of a running engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lam_vllm.commands.calibrate_device import with_engine
from lam_vllm.performance_model.calibrate import Timing
from lam_vllm.performance_model.model import LLAMA_3_1_8B
from lam_vllm.performance_model.presets import GB10
from lam_vllm.performance_model.served import Served, decode_step_seconds, ttft_seconds
from tests.cli.modelled import ROOT, by_name, model, modelled

ROUTE = Served(0.02, 1.5e-3, 2e-7, 0.03, 1e-6, "made up")


@pytest.fixture
def calibrated(tmp_path: Path) -> Path:
    """A device file as `lam-vllm calibrate device --url` writes it, of an engine that is as `ROUTE` says."""
    asked = [(new, old) for new in (50, 200, 1_000, 4_000) for old in (0, 500, 3_000)]
    timings = [
        Timing(new, old, ttft_seconds(ROUTE, new, old), decode_step_seconds(ROUTE, new + old)) for new, old in asked
    ]
    path = tmp_path / "measured.json"
    path.write_text(json.dumps(with_engine(GB10, LLAMA_3_1_8B, timings).json()), encoding="utf-8")
    return path


def without_served(calibrated: Path) -> Path:
    """The same file with its rates alone."""
    path = calibrated.with_name("rates.json")
    described = json.loads(calibrated.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**described, "served": None}), encoding="utf-8")
    return path


def test_what_was_measured_of_the_model_is_its_time_to_first_token(calibrated: Path) -> None:
    done = model("--device", calibrated, "--json")
    assert done.exit_code == 0 and done.stderr == ""
    found = json.loads(done.stdout)
    deciding = by_name(found["policies"])["admit exact"]["compaction_seconds"]
    for turn in (1, 2, 100):
        seconds = found["ttft_seconds"][turn - 1]
        assert seconds["no compaction"] == pytest.approx(ttft_seconds(ROUTE, 598, 637 * (turn - 1)))
        kept = 598 * (1 - 0.207)
        assert seconds["admit exact"] == pytest.approx(ttft_seconds(ROUTE, kept, (kept + 39) * (turn - 1)) + deciding)
    basis = by_name(found["does_not_pay"], "about")["what times rest on"]
    assert basis["applies"] is None and "measured of this model" in basis["text"]
    assert "12 prompts of up to 7,000 tokens" in basis["text"]
    assert by_name(found["policies"])["no compaction"]["fixed_seconds"] == pytest.approx(0.02)
    assert " fixed" in model("--device", calibrated).stdout


def test_what_was_measured_of_another_model_is_not_used_and_that_is_said(calibrated: Path) -> None:
    config = ROOT / ".models/smollm2/config.json"
    done = model("--device", calibrated, "--model", config, "--json")
    assert done.exit_code == 0, done.stderr
    assert "are not those of" in done.stderr and "Llama-3.1-8B" in done.stderr
    found = json.loads(done.stdout)
    assert by_name(found["does_not_pay"], "about")["what times rest on"]["applies"] is True
    assert found["policies"] == modelled("--device", without_served(calibrated), "--model", config)["policies"]


def test_the_papers_accounting_takes_nothing_measured(calibrated: Path) -> None:
    files = (calibrated, without_served(calibrated))
    found, rates = (modelled("--accounting", "paper", "--device", path) for path in files)
    assert found["policies"] == rates["policies"]
    said = by_name(found["does_not_pay"], "about")["what times rest on"]
    assert said["applies"] is None and "paper takes nothing measured" in said["text"]
