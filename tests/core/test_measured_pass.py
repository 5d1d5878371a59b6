"""The fast pass of this machine is measured once, and kept under what decides it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from lam_vllm.encoders import measured
from lam_vllm.encoders.base import Pass
from lam_vllm.encoders.measured import keep_pass, kept_measurements, measured_pass
from lam_vllm.encoders.two_pass import FastPass
from lam_vllm.types import Embedding
from tests.core.fake_encoders import TwoPassBag


class QuickBag(TwoPassBag):
    """Has a fast way alone, so that no clock decides what is chosen."""

    def passes(self) -> Sequence[Pass]:
        return [Pass("noisy, batches of 4", "noisy", 4)]


class OtherBag(QuickBag):
    fingerprint = "another bag"


class AloneBag(TwoPassBag):
    def passes(self) -> Sequence[Pass]:
        return [Pass("alone", "exact", 1, canonical=True)]

    def encode_batch(self, texts: Sequence[str], way: Pass) -> Embedding:
        return super().encode_batch(texts, way)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "lam-vllm/encoders"


def test_it_is_measured_once_and_read_afterwards(folder: Path) -> None:
    assert kept_measurements() == folder
    first = measured_pass(QuickBag())
    (file,) = folder.iterdir()
    assert json.loads(file.read_text())["guard_band"] == first.guard_band > 0
    later = QuickBag()
    assert measured_pass(later) == first
    assert later.fast == later.canonical == {}


def test_another_encoder_is_measured_by_itself(folder: Path) -> None:
    measured_pass(QuickBag())
    measured_pass(OtherBag())
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("variable", ["ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS"])
def test_other_instructions_are_measured_by_themselves(
    folder: Path, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured_pass(QuickBag())
    monkeypatch.setenv(variable, "avx2")
    again = QuickBag()
    measured_pass(again)
    assert again.fast
    assert len(list(folder.iterdir())) == 2


def test_another_kind_of_cpu_is_measured_by_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured_pass(QuickBag())
    monkeypatch.setattr(measured, "_cpu", lambda: ["model name: another"])
    measured_pass(QuickBag())
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"way": {"label": "gone", "precision": "int4", "batch": 4, "canonical": False}},
        {"way": None},
        {"guard_band": None},
        {"guard_band": "wide"},
        {"guard_band": 0.0},
        {"guard_band": -0.1},
        {"guard_band": float("nan")},
        {"embedding_error": 0.0},
        {"embedding_error": None},
        {"embedding_error": float("nan")},
        {"unknown": 1},
    ],
)
def test_a_file_that_is_no_such_measurement_is_replaced(folder: Path, change: dict[str, object]) -> None:
    measured_pass(QuickBag())
    (file,) = folder.iterdir()
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    again = QuickBag()
    assert measured_pass(again).guard_band > 0
    assert again.fast
    assert json.loads(file.read_text())["way"]["label"] == "noisy, batches of 4"


def test_what_was_kept_before_errors_were_measured_is_replaced(folder: Path) -> None:
    first = measured_pass(QuickBag())
    (file,) = folder.iterdir()
    file.write_text(json.dumps({key: value for key, value in asdict(first).items() if key != "embedding_error"}))
    assert measured_pass(QuickBag()).embedding_error == first.embedding_error > 0
    assert json.loads(file.read_text())["embedding_error"] == first.embedding_error


def test_a_later_version_of_the_measurement_measures_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured_pass(QuickBag())
    monkeypatch.setattr(measured, "MEASUREMENT_VERSION", 99)
    measured_pass(QuickBag())
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("text", ["", "[]", "{}", "3", "\x00", '{"way"'])
def test_a_broken_file_is_replaced(folder: Path, text: str) -> None:
    first = measured_pass(QuickBag())
    (file,) = folder.iterdir()
    file.write_text(text)
    assert measured_pass(QuickBag()).way == first.way
    assert json.loads(file.read_text())["reason"]


def test_the_wider_band_holds_and_is_not_kept() -> None:
    first = measured_pass(QuickBag())
    wide = measured_pass(QuickBag(), least_band=0.5)
    assert wide.guard_band == 0.5
    assert wide.embedding_error == pytest.approx(first.embedding_error * 0.5 / first.guard_band)
    assert measured_pass(QuickBag(), least_band=1e-9) == first == measured_pass(QuickBag())


def test_a_canonical_way_has_no_band_whatever_was_measured_elsewhere_or_kept(folder: Path) -> None:
    for field in ("", "guard_band", "embedding_error"):
        for file in folder.glob("*") if field else ():
            file.write_text(json.dumps({**json.loads(file.read_text()), field: 0.5}))
        alone = measured_pass(AloneBag(), least_band=0.5)
        assert (alone.guard_band, alone.embedding_error) == (0.0, 0.0)


def test_a_folder_that_cannot_be_written_to_costs_the_measurement_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for _ in range(2):
        bag = QuickBag()
        assert measured_pass(bag).guard_band > 0
        assert bag.fast


def test_what_is_kept_by_hand_is_used() -> None:
    bag = QuickBag()
    mine = FastPass(bag.passes()[0], 0.123, {"noisy, batches of 4": 7.0}, "measured on more texts", 0.3)
    keep_pass(bag, mine)
    assert measured_pass(QuickBag()) == mine
    assert bag.fast == {}
