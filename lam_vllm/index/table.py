"""The table of an index as bytes: its windows, the names of its full segments, and the segment that is not full yet."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lam_vllm.codec import CodecError
from lam_vllm.index.segments import SEGMENT_ROWS
from lam_vllm.memory import SeenWindow

MAGIC = b"LAMI"
VERSION = 1
NAME_BYTES = 16
EVICTED = bytes(NAME_BYTES)
"""Stands for the name of a segment that was let go."""
MOST_WINDOWS = 2**16
"""Before it is known whether it is a table, no more is unpacked than these take."""
_HEAD = struct.Struct("<4sHHIIIIIQdd")
"""Magic, version, 0, dimension, rows, windows, bytes of packed windows and of the tail, uncovered, the two bounds."""
_COUNTS = ("message", "result", "start", "end", "row")
_FORM = np.dtype([*((name, "<u4") for name in _COUNTS), ("part", "<i4"), ("distance", "<f4")])
_COLUMNS = (*_COUNTS, "part", "distance")
_NO_PART = _OWN_ROW = -1


@dataclass(frozen=True, slots=True)
class Table:
    """The windows of a prefix, its `rows` of `dimension`, two bounds, and the name of every full segment.

    `tail` is the segment of the rows behind those, as bytes: none where there are no such rows, or it was let go.
    """

    dimension: int
    rows: int
    eps: float
    embedding_error: float
    uncovered: int
    windows: tuple[SeenWindow, ...]
    segments: tuple[bytes, ...]
    tail: bytes


def table_bytes(table: Table) -> bytes:
    """The table as it is kept, its windows packed column by column.

    Raises:
        CodecError: it has too many windows.
    """
    if len(table.windows) > MOST_WINDOWS:
        raise CodecError("windows", len(table.windows), f"0 to {MOST_WINDOWS}")
    lines = np.zeros(len(table.windows), _FORM)
    for place, window in enumerate(table.windows):
        part = _NO_PART if window.part is None else window.part
        distance = _OWN_ROW if window.distance is None else window.distance
        lines[place] = (window.message, window.result, window.start, window.end, window.row, part, distance)
    packed = zlib.compress(b"".join(lines[name].tobytes() for name in _COLUMNS))
    counts = table.dimension, table.rows, len(table.windows), len(packed), len(table.tail)
    head = _HEAD.pack(MAGIC, VERSION, 0, *counts, table.uncovered, table.eps, table.embedding_error)
    return b"".join([head, *table.segments, packed, table.tail])


def read_table(data: bytes) -> Table:
    """The table that these bytes are; of the tail only how long it is was looked at.

    Raises:
        CodecError: they are none, or one that contradicts itself.
    """
    if len(data) < _HEAD.size:
        raise CodecError("table", f"{len(data)} bytes", f"at least {_HEAD.size}")
    magic, version, reserved, dimension, rows, windows, packed, tail, uncovered, eps, error = _HEAD.unpack_from(data)
    if (magic, version, reserved) != (MAGIC, VERSION, 0):
        raise CodecError("table", f"{magic.hex()} {version} {reserved}", f"{MAGIC.hex()} {VERSION} 0")
    first = _HEAD.size + NAME_BYTES * (rows // SEGMENT_ROWS)
    end = first + packed
    if len(data) != end + tail:
        raise CodecError("table", f"{len(data)} bytes", f"{end + tail}, as its head says")
    if not (0.0 < eps < math.inf and 0.0 <= error < math.inf):
        raise CodecError("eps", f"{eps} with the embedding error {error}", "a number above 0, and one from 0")
    lines = _unpacked(data[first:end], windows)
    _check(lines, rows)
    names = tuple(data[at : at + NAME_BYTES] for at in range(_HEAD.size, first, NAME_BYTES))
    return Table(dimension, rows, eps, error, uncovered, tuple(_windows(lines)), names, data[end:])


def _unpacked(packed: bytes, windows: int) -> NDArray[np.void]:
    if windows > MOST_WINDOWS:
        raise CodecError("windows", windows, f"0 to {MOST_WINDOWS}")
    size, inflater = _FORM.itemsize * windows, zlib.decompressobj()
    try:
        columns = inflater.decompress(packed, size + 1)
    except zlib.error as error:
        raise CodecError("windows", str(error), "a zlib stream") from None
    if len(columns) != size or not inflater.eof or inflater.unused_data:
        raise CodecError("windows", f"{len(columns)} bytes or more", f"{size}")
    lines, at = np.empty(windows, _FORM), 0
    for name in _COLUMNS:
        lines[name] = np.frombuffer(columns, _FORM[name], windows, at)
        at += _FORM[name].itemsize * windows
    return lines


def _check(lines: NDArray[np.void], rows: int) -> None:
    """Every row belongs to one window, which comes before all that it stands for; spans and distances are such."""
    own = lines["distance"] == _OWN_ROW
    before = np.cumsum(own)
    if rows != int(own.sum()) or not (lines["row"][own] == before[own] - 1).all():
        raise CodecError("row", "another number or order", f"0 to {rows - 1}, each at its own window")
    if not (lines["row"] < before).all():
        raise CodecError("row", "of a later window", "one of an earlier window")
    distances = lines["distance"][~own]
    if not (np.isfinite(distances) & (distances >= 0.0)).all():
        raise CodecError("distance", "negative, or not finite", "at least 0")
    if not ((lines["start"] < lines["end"]) & (lines["part"] >= _NO_PART)).all():
        raise CodecError("window", "an empty span, or a negative part", "characters start:end of a text")


def _windows(lines: NDArray[np.void]) -> Iterator[SeenWindow]:
    for message, result, start, end, row, part, distance in lines.tolist():
        own, sole = distance == _OWN_ROW, part == _NO_PART
        yield SeenWindow(message, None if sole else part, result, start, end, row, None if own else distance)
