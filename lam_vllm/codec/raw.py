"""The lossless twin: every bit of every value, for what must not lose any."""

from __future__ import annotations

import zlib

import numpy as np

from lam_vllm.codec.bounded import Values
from lam_vllm.codec.error import CodecError


def raw_body(rows: Values) -> bytes:
    """The values' first bytes, then all second, third and fourth ones, by zlib. Another zlib may give other bytes."""
    return zlib.compress(rows.astype("<f4", copy=False).reshape(-1, 1).view(np.uint8).T.tobytes())


def raw_rows(body: memoryview, count: int, dimension: int) -> Values:
    """The (N, D) float32 matrix of a body, bit by bit what was encoded.

    Raises:
        CodecError: the body is not one zlib stream of so many values.
    """
    size = 4 * count * dimension
    unpacker = zlib.decompressobj()
    try:
        shuffled = unpacker.decompress(body, size + 1)  # what it allocates grows with what it finds, up to this
    except zlib.error as error:
        raise CodecError("body", error, "a zlib stream") from error
    if len(shuffled) != size or not unpacker.eof or unpacker.unused_data:
        raise CodecError("body", f"{len(shuffled)} bytes or more", f"one zlib stream of {size} bytes")
    octets = np.frombuffer(shuffled, np.uint8).reshape(4, -1)
    values = octets.T.copy(order="C").view("<f4").astype(np.float32, copy=False)
    return values.reshape(count, dimension)
