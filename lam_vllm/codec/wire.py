"""What stands before every body: 36 bytes that say what it is, and a checksum over all of it."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal, TypeAlias

import xxhash

from lam_vllm.codec.bounded import checked_eps
from lam_vllm.codec.error import CodecError
from lam_vllm.codec.planes import BLOCK

Mode = Literal["raw", "fixed", "dense"]
Stream: TypeAlias = bytes | bytearray | memoryview

MAGIC = b"LAMC"
VERSION = 1
MODES: tuple[Mode, ...] = ("raw", "fixed", "dense")
MOST_VALUES = 2**26
"""Rows filled up to whole blocks, 256 MiB of float32: far more than a segment, and little enough to be allocated."""
MOST_DIMENSION = 2**16

_FIELDS = struct.Struct("<4sBBHIIId")
_CHECKSUM = struct.Struct("<Q")
HEADER_BYTES = _FIELDS.size + _CHECKSUM.size


@dataclass(frozen=True, slots=True)
class Header:
    """What a stream says of itself: `rows` x `dimension` values within `eps` (0 in mode raw), in `body_bytes`."""

    version: int
    mode: Mode
    rows: int
    dimension: int
    eps: float
    body_bytes: int


def sealed(mode: Mode, rows: int, dimension: int, eps: float, body: bytes) -> bytes:
    """The stream: little-endian magic, version, mode, 0, rows, dimension, body bytes, eps, checksum; then the body."""
    fields = _FIELDS.pack(MAGIC, VERSION, MODES.index(mode), 0, rows, dimension, len(body), eps)
    return fields + _CHECKSUM.pack(_sum(fields, body)) + body


def opened(stream: Stream) -> tuple[Header, memoryview]:
    """The header and the body, whose checksum is right.

    Raises:
        CodecError: what `read_header` says, or the checksum is another.
    """
    header = read_header(stream)
    view = _bytes_of(stream)
    (told,) = _CHECKSUM.unpack_from(view, _FIELDS.size)
    found = _sum(view[: _FIELDS.size], view[HEADER_BYTES:])
    if told != found:
        raise CodecError("checksum", f"{told:016x}", f"{found:016x}, that of these bytes")
    return header, view[HEADER_BYTES:]


def read_header(stream: Stream) -> Header:
    """What the stream says of itself, its checksum not looked at.

    Raises:
        CodecError: it is not bytes, too short, of another kind or version, or a field has a value that it cannot have.
        CodecError: the body is not as long as the header says.
    """
    view = _bytes_of(stream)
    if len(view) < HEADER_BYTES:
        raise CodecError("stream", f"{len(view)} bytes", f"at least {HEADER_BYTES}, those of the header")
    magic, version, mode, reserved, rows, dimension, body_bytes, eps = _FIELDS.unpack_from(view)
    if magic != MAGIC:
        raise CodecError("magic", magic.hex(), MAGIC.hex())
    if version != VERSION:
        raise CodecError("version", version, str(VERSION))
    if mode >= len(MODES):
        raise CodecError("mode", mode, f"0 to {len(MODES) - 1}")
    if reserved:
        raise CodecError("reserved", reserved, "0")
    check_shape(rows, dimension)
    if MODES[mode] != "raw":
        checked_eps(eps)
    elif eps != 0:
        raise CodecError("eps", eps, "0 in mode raw")
    if body_bytes != len(view) - HEADER_BYTES:
        raise CodecError("body", f"{len(view) - HEADER_BYTES} bytes", f"{body_bytes}, as the header says")
    return Header(version, MODES[mode], rows, dimension, eps, body_bytes)


def check_shape(rows: int, dimension: int) -> None:
    """Nothing, if a matrix may have this shape.

    Raises:
        CodecError: the dimension is none that is allowed, or there are too many values.
    """
    if not 1 <= dimension <= MOST_DIMENSION:
        raise CodecError("dimension", dimension, f"1 to {MOST_DIMENSION}")
    most_rows = MOST_VALUES // (BLOCK * -(-dimension // BLOCK))
    if rows > most_rows:
        raise CodecError("rows", rows, f"0 to {most_rows} of dimension {dimension}")


def _bytes_of(stream: Stream) -> memoryview:
    if not isinstance(stream, bytes | bytearray | memoryview):
        raise CodecError("stream", type(stream).__name__, "bytes, bytearray or memoryview")
    view = memoryview(stream)
    if view.format != "B" or view.ndim != 1 or not view.c_contiguous:
        raise CodecError("stream", f"{view.ndim} axes of format {view.format}", "contiguous bytes")
    return view


def _sum(fields: bytes | memoryview, body: bytes | memoryview) -> int:
    hasher = xxhash.xxh3_64(fields)
    hasher.update(body)
    return hasher.intdigest()
