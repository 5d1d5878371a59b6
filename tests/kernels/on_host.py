"""The kernels run on the CPU: a device for `ops.launches` whose arrays are numpy's."""

from __future__ import annotations

import ctypes as c
from pathlib import Path
from typing import Any

import numpy as np

from lam_vllm.ops.launches import THREADS

_TYPES = {
    np.dtype(np.bool_): c.c_bool,
    np.dtype(np.uint32): c.c_uint32,
    np.dtype(np.uint64): c.c_uint64,
    np.dtype(np.float32): c.c_float,
}


class OnHost:
    """`launches.Device` over `kernels/host/on_host.cpp`; blocks begin in the order of a shuffle by `seed`.

    New arrays are full of rubbish, as a device's are.
    """

    def __init__(self, library: Path, seed: int = 0) -> None:
        self._library = c.CDLL(str(library))
        self.seed = seed
        self.launched: list[str] = []

    def owns(self, array: object) -> bool:
        return isinstance(array, np.ndarray)

    def address(self, array: Any) -> int:
        return int(array.ctypes.data)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        array = np.empty(shape, dtype)
        array.view(np.uint8)[...] = 0xA5
        return array

    def zeros(self, words: int) -> Any:
        return np.zeros(words, np.uint32)

    def launch(self, kernel: str, grid: int, arguments: tuple[Any, ...]) -> None:
        passed = [_passed(argument) for argument in arguments]
        entry = c.c_void_p.in_dll(self._library, f"on_host_{kernel}").value
        assert entry is not None
        types: list[Any] = [c.c_uint, c.c_uint, c.c_uint, *(type(argument) for argument in passed)]
        c.CFUNCTYPE(None, *types)(entry)(grid, THREADS, self.seed, *passed)
        self.launched.append(kernel)


def _passed(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        return c.c_void_p(argument.ctypes.data)
    return _TYPES[argument.dtype](argument.item())
