"""The kernels compile for every target, without a warning or a spill: by nvcc, and by NVRTC as CuPy calls it."""

from __future__ import annotations

import ctypes as c
import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

from lam_vllm.ops.sources import KERNELS, OPTIONS, compiler_options, source_file
from tests.kernels.builds import compiler

TARGETS = ("80", "90", "100")
STRICT = ("-O3", "-Werror", "all-warnings", "-Xptxas", "-warn-spills,-warn-lmem-usage")
SPILLING = """
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(const float* in, float* out) {
    float held[64];
    for (int i = 0; i < 64; ++i) held[i] = in[threadIdx.x * 64 + i];
    __syncthreads();
    for (int i = 0; i < 64; ++i) for (int j = 0; j < 64; ++j) out[i * 64 + j] = held[i] * held[j] + held[(i + j) % 64];
}
"""


def nvcc(source: Path, target: Path, architecture: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = (compiler("nvcc"), *compiler_options(), *STRICT, f"-arch=sm_{architecture}", *more)
    command = (*command, str(source), "-o", str(target))
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("architecture", TARGETS)
def test_nvcc_compiles_without_a_warning_or_a_spill(kernel: str, architecture: str, tmp_path: Path) -> None:
    done = nvcc(source_file(kernel), tmp_path / "kernel.cubin", architecture, "-cubin")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_kernel_that_spills_would_fail(tmp_path: Path) -> None:
    source = tmp_path / "spilling.cu"
    source.write_text(SPILLING, encoding="ascii")
    done = nvcc(source, tmp_path / "kernel.cubin", "80", "-cubin")
    assert done.returncode != 0
    assert "spilled to local memory" in done.stdout + done.stderr


class Nvrtc:
    """The run-time compiler, from its wheel."""

    def __init__(self) -> None:
        spec = importlib.util.find_spec("nvidia.cu13") if importlib.util.find_spec("nvidia") else None
        folders = list(spec.submodule_search_locations or []) if spec else []
        found = [path for folder in folders for path in Path(folder).glob("lib/libnvrtc.so.*")]
        if not found:
            pytest.skip("no NVRTC here: the wheel nvidia-cuda-nvrtc is not installed")
        self._library = c.CDLL(str(found[0]))

    def compile(self, file: Path, options: tuple[str, ...], result: str) -> bytes:
        """The `result`, CUBIN or PTX, of a file; the log must be empty."""
        program, size = c.c_void_p(), c.c_size_t()
        text = file.read_bytes()
        self._call("CreateProgram", c.byref(program), text, file.name.encode(), 0, None, None)
        passed = (c.c_char_p * len(options))(*(option.encode() for option in options))
        status = self._library.nvrtcCompileProgram(program, len(options), passed)
        self._call("GetProgramLogSize", program, c.byref(size))
        log = c.create_string_buffer(size.value)
        self._call("GetProgramLog", program, log)
        assert status == 0 and not log.value.strip(), log.value.decode()
        self._call(f"Get{result}Size", program, c.byref(size))
        compiled = c.create_string_buffer(size.value)
        self._call(f"Get{result}", program, compiled)
        self._call("DestroyProgram", c.byref(program))
        return compiled.raw

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, f"nvrtc{name}")(*arguments)
        assert status == 0, f"{name}: {status}"


@pytest.fixture(scope="module")
def nvrtc() -> Nvrtc:
    return Nvrtc()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("architecture", TARGETS)
def test_nvrtc_compiles_what_cupy_would_load(nvrtc: Nvrtc, kernel: str, architecture: str) -> None:
    as_cupy = (*compiler_options(), f"-arch=sm_{architecture}", "--device-as-default-execution-space")
    cubin = nvrtc.compile(source_file(kernel), as_cupy, "CUBIN")
    assert cubin.startswith(b"\x7fELF")
    assert f"lam_{kernel}".encode() in cubin


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_operation_is_rounded_on_its_own_and_keeps_subnormal_numbers(nvrtc: Nvrtc, kernel: str) -> None:
    ptx = nvrtc.compile(source_file(kernel), (*compiler_options(), "-arch=compute_90"), "PTX").decode("ascii", "ignore")
    arithmetic = re.findall(r"\b(?:fma|mad|mul|add|sub|div|sqrt|rcp|cvt)\.[a-z0-9.]*f(?:32|64)\b", ptx)
    assert arithmetic
    assert not [operation for operation in arithmetic if re.search(r"^(fma|mad|rcp)|ftz|approx|full", operation)]


def test_the_options_matter(nvrtc: Nvrtc) -> None:
    contracted = tuple(option for option in compiler_options() if option not in OPTIONS)
    ptx = nvrtc.compile(source_file("l2_verify"), (*contracted, "--std=c++17", "-arch=compute_90"), "PTX")
    assert b"fma.rn.f64" in ptx
