"""The array operations on a GPU: arrays of CuPy in and out, on its current device and stream, the bits of `reference`.

CuPy is imported at the first call. Its memory pool keeps what earlier calls used, so that a call in steady state asks
the driver for no memory. Grids and checks are in `launches`, the kernels in the folder `kernels`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from lam_vllm.errors import MissingExtraError
from lam_vllm.ops import launches
from lam_vllm.ops.launches import THREADS, Bands, Bound, Device, FixedBlocks
from lam_vllm.ops.sources import KERNELS, compiler_options, source_file


def load() -> None:
    """Compiles every kernel for the current device, or says what is missing.

    Raises:
        MissingExtraError: CuPy is not installed.
        InputFileError: the installation is incomplete.
        Exception: what CuPy raises where there is no device, no compiler, or a kernel does not compile.
    """
    cupy = _cupy()
    for name in KERNELS:
        _kernel(name, cupy.cuda.Device().compute_capability).compile()


@cache
def device() -> Device:
    """The device that is current in each call, for `launches`.

    Raises:
        MissingExtraError: CuPy is not installed.
    """
    return _CupyDevice(_cupy())


def l2_distances(rows: Any, query: Any) -> Any:
    """(N,) float64 of (N, D) and (D,) float32; see `reference.l2_distances` and, for what is raised, `launches`."""
    return launches.l2_distances(device(), rows, query)


def band_digests(rows: Any, eps: float, width: int) -> Any:
    """(N, ceil(D / width)) uint64 of (N, D) float32; see `reference.band_digests` and `launches.quantize_bands`."""
    return launches.quantize_bands(device(), rows, eps, width, with_quanta=False).digests


def quantize_bands(rows: Any, eps: float, width: int) -> Bands:
    """Digests, and quanta (N, D) int32, from one pass; see `launches.quantize_bands`."""
    return launches.quantize_bands(device(), rows, eps, width, with_quanta=True)


def encode_fixed(rows: Any, bound: Bound) -> FixedBlocks:
    """The blocks of a (N, D) float32 matrix; see `launches.encode_fixed`."""
    return launches.encode_fixed(device(), rows, bound)


def decode_fixed(widths: Any, words: Any, dimension: int, step: np.float32) -> Any:
    """The (N, D) float32 matrix of blocks; see `launches.decode_fixed`."""
    return launches.decode_fixed(device(), widths, words, dimension, step)


class _CupyDevice:
    """`launches.Device` of the device that is current in each call."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy

    def owns(self, array: object) -> bool:
        return isinstance(array, self._cupy.ndarray) and array.device.id == self._cupy.cuda.runtime.getDevice()

    def address(self, array: Any) -> int:
        return int(array.data.ptr)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self._cupy.empty(shape, dtype)

    def zeros(self, words: int) -> Any:
        return self._cupy.zeros(words, np.uint32)

    def launch(self, kernel: str, grid: int, arguments: tuple[Any, ...]) -> None:
        function = _kernel(kernel, self._cupy.cuda.Device().compute_capability)
        function((grid,), (THREADS,), arguments)


def _cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise MissingExtraError("a CUDA device", "cuda", "the device cpu") from error
    return cupy


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="lam-kernels-")


@cache
def _kernel(name: str, architecture: str) -> Any:
    """A kernel compiled for an architecture such as "90".

    Not by the compiler cache of CuPy's RawModule: that adds -ftz=true, which would lose subnormal numbers.
    """
    from cupy.cuda.compiler import compile_using_nvrtc

    file = source_file(name)
    text = file.read_text(encoding="utf-8")
    compiled, _ = compile_using_nvrtc(text, compiler_options(), architecture, file.name)
    path = Path(_folder().name) / f"{name}-{architecture}.cubin"
    path.write_bytes(compiled)
    return _cupy().RawModule(path=str(path)).get_function(f"lam_{name}")
