"""A segment: at most 256 rows under the codec, and how far each decoded row is from the one it was."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lam_vllm.codec import CodecError, decode, encode, encode_on, read_header
from lam_vllm.ops.on_device import DeviceArrays
from lam_vllm.types import Embedding

SEGMENT_ROWS = 256
MAGIC = b"LAMS"
VERSION = 1
_HEAD = struct.Struct("<4sHHd")  # magic, version, rows, unit
_ROUNDING = 1.0 + 2.0**-40
"""More than a float64 norm of a row can be wrong by, as a factor."""


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Rows as they are searched, (N, D) float32 of unit length, and a bound on how far each is from the original (l2).

    `data` is what is kept: a function of the original rows, of the codec's bound and of its mode.
    """

    data: bytes
    rows: Embedding
    errors: NDArray[np.floating[Any]]


def blocks(rows: Embedding) -> Iterator[Embedding]:
    """The rows of each segment, in order: every one is full but the last, however the rows came together."""
    for start in range(0, len(rows), SEGMENT_ROWS):
        yield rows[start : start + SEGMENT_ROWS]


def make_segment(rows: Embedding, eps: float, device: DeviceArrays | None = None) -> Segment:
    """The segment of 1 to `SEGMENT_ROWS` rows, which is what `read_segment` makes of its bytes.

    On a device the codec's mode is `fixed`, whose bytes are more; the rows that they decode to are the same.

    Raises:
        CodecError: `rows` or `eps` is nothing that can be encoded.
    """
    stream = encode(rows, eps, "dense") if device is None else encode_on(device, rows, eps)
    decoded = _unit(decode(stream))
    unit, steps = _measured(rows, decoded, eps)
    return Segment(_HEAD.pack(MAGIC, VERSION, len(rows), unit) + steps.tobytes() + stream, decoded, steps * unit)


def read_segment(data: bytes, rows: int, dimension: int) -> Segment:
    """The segment that these bytes are, which has so many rows of this dimension.

    Raises:
        CodecError: they are none, or one of another shape.
    """
    if len(data) < _HEAD.size + rows:
        raise CodecError("segment", f"{len(data)} bytes", f"at least {_HEAD.size + rows}")
    magic, version, count, unit = _HEAD.unpack_from(data)
    if (magic, version) != (MAGIC, VERSION):
        raise CodecError("segment", f"{magic.hex()} {version}", f"{MAGIC.hex()} {VERSION}")
    if not 0.0 < unit < math.inf:
        raise CodecError("unit", unit, "a number above 0")
    stream = memoryview(data)[_HEAD.size + rows :]
    header = read_header(stream)  # before anything is allocated
    if (count, header.rows, header.dimension) != (rows, rows, dimension):
        shapes = f"{count}, {header.rows} of dimension {header.dimension}"
        raise CodecError("rows", shapes, f"{rows} of dimension {dimension}")
    decoded = decode(stream)
    if not np.isfinite(decoded).all():
        raise CodecError("rows", "a value that is not finite", "finite values")
    steps = np.frombuffer(data, np.uint8, rows, _HEAD.size)
    return Segment(data, _unit(decoded), steps * unit)


def _unit(decoded: Embedding) -> Embedding:
    """The rows scaled to unit length, in float64; one without a length stays as it is. Equal rows stay equal."""
    wide = decoded.astype(np.float64)
    norms = np.sqrt(np.square(wide).sum(axis=1, keepdims=True))
    scaled: Embedding = (wide / np.where(norms > 0.0, norms, 1.0)).astype(np.float32)
    return scaled


def _measured(rows: Embedding, decoded: Embedding, eps: float) -> tuple[float, NDArray[np.uint8]]:
    """A unit, and for each row how many of it make an upper bound on its l2 error: none where nothing was changed.

    Scaling a row to unit length at most doubles an error, which was eps sqrt(D) at most: a byte holds what there is.
    """
    difference = rows.astype(np.float64) - decoded.astype(np.float64)
    errors = np.sqrt(np.square(difference).sum(axis=1)) * _ROUNDING
    expected = 2.0 * eps * math.sqrt(rows.shape[1]) / 255
    unit = math.nextafter(max(expected, float(errors.max()) / 254), math.inf)
    steps = np.floor(errors / unit) + (errors > 0.0)
    return unit, steps.astype(np.uint8)
