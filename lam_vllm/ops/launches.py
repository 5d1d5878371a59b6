"""What each kernel is launched with, on any device: shapes checked, results allocated, grids and arguments found.

Arrays are those of the device, and know shape, dtype and flags as numpy's do. Nothing here needs CUDA.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from lam_vllm.ops.reference import quanta_step

THREADS = 256
"""Of a thread block, in every kernel."""
MOST_BLOCKS = 2**25 - 1
"""Of a matrix that is encoded: 32 words of each may have to be counted in 30 bits."""
MOST_BANDS = 2**31 - 1
MOST_DIMENSION = 2**24

_BLOCK = 32  # values of a block of the codec
_TILE = 128  # blocks that one thread block encodes or decodes
_ROWS = 32  # whose distance one thread block finds
_TILES_HEAD = 3  # words before the states: struct Tiles of scan.h
_STRANGE_WIDTH = 1  # codec_decode.cu


class Device(Protocol):
    """Runs kernels on its current stream."""

    def owns(self, array: object) -> bool:
        """Whether this is an array in the memory of the device."""

    def address(self, array: Any) -> int:
        """Where an array of the device begins."""

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """A new array of unknown values."""

    def zeros(self, words: int) -> Any:
        """A new array of uint32 zeros."""

    def launch(self, kernel: str, grid: int, arguments: tuple[Any, ...]) -> None:
        """Starts `grid` blocks of `THREADS` threads; arguments are arrays and numpy scalars of the kernel's types."""


@dataclass(frozen=True, slots=True)
class Bound:
    """An error bound as fp32 numbers, which `codec.bounded` makes of eps."""

    step: np.float32
    inverse: np.float32
    tolerance: np.float32


@dataclass(frozen=True, slots=True)
class FixedBlocks:
    """A matrix in the fixed layout of `codec.fixed`: `widths` (N, ceil(D / 32)) uint8 and `words` (W,) uint32.

    `words` is the beginning of an array that has room for the worst case: copy what is to be kept.
    """

    widths: Any
    words: Any


@dataclass(frozen=True, slots=True)
class Bands:
    """`digests` (N, ceil(D / width)) uint64 and, if asked for, `quanta` (N, D) int32."""

    digests: Any
    quanta: Any | None


def l2_distances(device: Device, rows: Any, query: Any) -> Any:
    """(N,) float64; see `reference.l2_distances`.

    Raises:
        ValueError: `rows` is not a contiguous (N, D) float32 array of the device, `query` not such a (D,) array.
        ValueError: D is over `MOST_DIMENSION`, or the two differ in it.
    """
    _check(device, "rows", rows, 2, np.float32)
    _check(device, "query", query, 1, np.float32)
    count, dimension = rows.shape
    _at_most("rows: dimension", dimension, MOST_DIMENSION)
    if query.shape[0] != dimension:
        raise ValueError(f"query: dimension {query.shape[0]} is not allowed; allowed: {dimension}, that of rows")
    distances = device.empty((count,), np.float64)
    if count:
        vector = np.bool_(dimension % 4 == 0 and _aligned(device, rows) and _aligned(device, query))
        arguments = (rows, query, np.uint64(count), np.uint32(dimension), vector, distances)
        device.launch("l2_verify", -(-count // _ROWS), arguments)
    return distances


def quantize_bands(device: Device, rows: Any, eps: float, width: int, with_quanta: bool) -> Bands:
    """Digests of bands and, if asked for, quanta; see `reference.band_digests`. Waits for the device.

    Raises:
        ValueError: `rows` is not a contiguous (N, D) float32 array of the device.
        ValueError: D is over `MOST_DIMENSION`, or `width` is not between 1 and that.
        ValueError: there are more than `MOST_BANDS` bands.
        ValueError: `eps` is not a number whose double is a positive, finite float32.
        ValueError: a value is not finite, or 2^31 quanta or more from zero.
    """
    _check(device, "rows", rows, 2, np.float32)
    count, dimension = rows.shape
    _at_most("rows: dimension", dimension, MOST_DIMENSION)
    if not 1 <= width <= MOST_DIMENSION:
        raise ValueError(f"width: {width} is not allowed; allowed: 1 to {MOST_DIMENSION}")
    of_row = -(-dimension // width)
    _at_most("rows: bands", count * of_row, MOST_BANDS)
    step = quanta_step(eps)
    bands = Bands(device.empty((count, of_row), np.uint64), device.empty(rows.shape, np.int32) if with_quanta else None)
    if count * of_row == 0:
        return bands
    refused = device.zeros(1)
    vector = np.bool_(width % 4 == 0 and dimension % 4 == 0 and _aligned(device, rows))
    quanta = np.uint64(0) if bands.quanta is None else bands.quanta
    sizes = (np.uint32(dimension), np.uint32(count * of_row), np.uint32(of_row), np.uint32(width))
    arguments = (rows, *sizes, vector, step, bands.digests, quanta, refused)
    device.launch("quantize_bands", -(-count * of_row // THREADS), arguments)
    if int(refused[0]):
        raise ValueError(f"rows: a value is not allowed; allowed: finite values below 2^31 quanta of {step}")
    return bands


def encode_fixed(device: Device, rows: Any, bound: Bound) -> FixedBlocks:
    """The blocks of a matrix, each value read once; see `codec.fixed.encode_blocks`. Waits for the device.

    Raises:
        ValueError: `rows` is not a contiguous (N, D) float32 array of the device.
        ValueError: there are more than `MOST_BLOCKS` blocks.
    """
    _check(device, "rows", rows, 2, np.float32)
    count, dimension = rows.shape
    blocks = count * -(-dimension // _BLOCK)
    _at_most("rows: blocks", blocks, MOST_BLOCKS)
    widths = device.empty((count, -(-dimension // _BLOCK)), np.uint8)
    words = device.empty((blocks * _BLOCK,), np.uint32)
    if not blocks:
        return FixedBlocks(widths, words)
    grid = -(-blocks // _TILE)
    tiles = device.zeros(_TILES_HEAD + grid)
    numbers = (bound.step, bound.inverse, bound.tolerance)
    arguments = (rows, *_shape(device, rows), *numbers, widths, words, tiles)
    device.launch("codec_encode", grid, arguments)
    return FixedBlocks(widths, words[: int(tiles[0])])


def decode_fixed(device: Device, widths: Any, words: Any, dimension: int, step: np.float32) -> Any:
    """(N, D) float32, from any widths and words; see `codec.fixed.decode_blocks`. Waits for the device.

    Raises:
        ValueError: `widths` is not a contiguous (N, ceil(D / 32)) uint8 array of the device at a multiple of 4 bytes.
        ValueError: `words` is not a contiguous uint32 vector of the device.
        ValueError: there are more than `MOST_BLOCKS` blocks, or more words than they can have.
        ValueError: a width is neither 255 nor at most 24.
        ValueError: there are more or fewer words than the widths say.
    """
    _check(device, "widths", widths, 2, np.uint8)
    _check(device, "words", words, 1, np.uint32)
    count, of_row = widths.shape
    if of_row != -(-dimension // _BLOCK):
        raise ValueError(f"widths: {of_row} a row is not allowed; allowed: {-(-dimension // _BLOCK)}, as D says")
    if device.address(widths) % 4:
        raise ValueError("widths: an odd address is not allowed; allowed: a multiple of 4 bytes")
    _at_most("widths: blocks", widths.size, MOST_BLOCKS)
    _at_most("words: length", words.size, widths.size * _BLOCK)
    rows = device.empty((count, dimension), np.float32)
    if not widths.size:
        return rows
    grid = -(-widths.size // _TILE)
    tiles = device.zeros(_TILES_HEAD + grid)
    device.launch(
        "codec_decode", grid, (widths, words, np.uint32(words.size), step, rows, *_shape(device, rows), tiles)
    )
    faults = int(tiles[1])
    if faults & _STRANGE_WIDTH:
        raise ValueError("widths: a width is not allowed; allowed: 0 to 24, or 255")
    if faults:
        raise ValueError(f"words: {words.size} is not allowed; allowed: as many as the widths say")
    return rows


def _shape(device: Device, rows: Any) -> tuple[np.uint64, np.uint32, np.uint32, np.bool_]:
    """Dimension, blocks, blocks of a row, and whether rows are read 16 bytes at a time: struct Shape of matrix.h.

    A matrix whose rows are whole blocks is told as one long row: where a value lies then takes no division.
    """
    count, dimension = rows.shape
    of_row = -(-dimension // _BLOCK)
    vector = np.bool_(dimension % 4 == 0 and _aligned(device, rows))
    if dimension % _BLOCK == 0:
        return np.uint64(count * dimension), np.uint32(count * of_row), np.uint32(count * of_row), vector
    return np.uint64(dimension), np.uint32(count * of_row), np.uint32(of_row), vector


def _aligned(device: Device, array: Any) -> bool:
    return device.address(array) % 16 == 0


def _check(device: Device, name: str, array: Any, axes: int, dtype: type) -> None:
    wanted = f"{axes} axes of {np.dtype(dtype)}, contiguous, on the current device"
    if not device.owns(array):
        raise ValueError(f"{name}: {type(array).__name__} from elsewhere is not allowed; allowed: {wanted}")
    if array.ndim != axes or array.dtype != dtype:
        raise ValueError(f"{name}: shape {array.shape} of {array.dtype} is not allowed; allowed: {wanted}")
    if not array.flags.c_contiguous:
        raise ValueError(f"{name}: strides {array.strides} are not allowed; allowed: {wanted}")


def _at_most(what: str, number: int, most: int) -> None:
    if number > most:
        raise ValueError(f"{what} {number} is not allowed; allowed: at most {most}")
