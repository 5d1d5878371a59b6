"""The host build of the headers, called with numpy arrays."""

from __future__ import annotations

import ctypes as c
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lam_vllm.codec.bounded import Values, inverse_of, step_of, tolerance_of
from lam_vllm.codec.planes import BLOCK

FAULTS = ("", "too short", "strange width", "other length")


def address(array: NDArray[np.generic]) -> c.c_void_p:
    return c.c_void_p(array.ctypes.data)


class HostBuild:
    """`kernels/host/lam_host.cpp`, compiled."""

    def __init__(self, library: Path) -> None:
        self._library = c.CDLL(str(library))
        self._library.lam_encode.restype = c.c_uint64

    def encode(self, rows: Values, eps: float) -> bytes:
        """The body of a fixed stream."""
        count, dimension = rows.shape
        body = np.full(count * -(-dimension // BLOCK) * 129 + 3, 0xAA, np.uint8)
        numbers = (c.c_float(float(number(eps))) for number in (step_of, inverse_of, tolerance_of))
        shape = c.c_uint64(count), c.c_uint32(dimension)
        size = self._library.lam_encode(address(np.ascontiguousarray(rows)), *shape, *numbers, address(body))
        return body[:size].tobytes()

    def decode(self, body: bytes, shape: tuple[int, ...], eps: float) -> Values | str:
        """The matrix of a body, or what is wrong with it."""
        rows = np.full(shape, np.nan, np.float32)
        sizes = c.c_uint64(shape[0]), c.c_uint32(shape[1])
        data = np.frombuffer(body, np.uint8)
        fault = self._library.lam_decode(
            address(data), c.c_uint64(len(body)), *sizes, c.c_float(float(step_of(eps))), address(rows)
        )
        return FAULTS[fault] if fault else rows

    def bands(self, rows: Values, step: np.float32, width: int) -> tuple[NDArray[np.uint64], NDArray[np.int32]] | None:
        """Digests and quanta; None where a value has no quantum."""
        count, dimension = rows.shape
        digests = np.zeros((count, -(-dimension // width)), np.uint64)
        quanta = np.zeros((count, dimension), np.int32)
        sizes = c.c_uint64(count), c.c_uint32(dimension), c.c_uint32(width), c.c_float(float(step))
        data = np.ascontiguousarray(rows)
        fits = self._library.lam_quantize_bands(address(data), *sizes, address(digests), address(quanta))
        return (digests, quanta) if fits else None

    def l2_distances(self, rows: Values, query: Values) -> NDArray[np.float64]:
        """As `reference.l2_distances`."""
        count, dimension = rows.shape
        distances = np.full(count, np.nan)
        data = np.ascontiguousarray(rows)
        shape = c.c_uint64(count), c.c_uint32(dimension)
        self._library.lam_l2_distances(address(data), address(query), *shape, address(distances))
        return distances
