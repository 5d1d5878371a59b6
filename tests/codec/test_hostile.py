"""Bytes that anyone may have written: they are a stream, or a `CodecError`, and never cost more than they may."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from array import array
from collections.abc import Iterator

import numpy as np
import pytest
import xxhash

from lam_vllm.codec import CodecError, decode, encode, encode_raw, read_header
from lam_vllm.codec.wire import HEADER_BYTES, MODES
from tests.codec.matrices import HOSTILE, embeddings

SUM_AT = HEADER_BYTES - 8
MUTATIONS = 100_000


def signed(data: bytes) -> bytes:
    """The bytes with the checksum that they should have: only then are they looked at."""
    if len(data) < HEADER_BYTES:
        return data
    checksum = xxhash.xxh3_64_intdigest(data[:SUM_AT] + data[HEADER_BYTES:])
    return data[:SUM_AT] + checksum.to_bytes(8, "little") + data[HEADER_BYTES:]


def resized(data: bytes) -> bytes:
    """The bytes whose header says how many follow, and which has the right checksum."""
    if len(data) < HEADER_BYTES:
        return data
    return signed(data[:16] + struct.pack("<I", len(data) - HEADER_BYTES) + data[20:])


def streams() -> list[bytes]:
    rows = embeddings(9, 40)
    hostile = np.tile(HOSTILE, (4, 3))
    found = [encode(matrix, 0.01, mode) for matrix in (rows, hostile) for mode in ("fixed", "dense")]
    return [*found, encode(embeddings(260, 3), 0.05), encode(np.zeros((5, 70), np.float32), 1.0), encode_raw(rows)]


def mutated(data: bytes, random: np.random.Generator) -> bytes:
    """The bytes cut off, lengthened, or with some bits, bytes or fields changed."""
    changed = bytearray(data)
    for _ in range(random.integers(1, 4)):
        at = int(random.integers(len(changed))) if changed else 0
        kind = random.integers(6)
        if kind == 0:
            changed = changed[:at]
        elif kind == 1:
            changed[at:at] = random.bytes(int(random.integers(1, 40)))
        elif kind == 2:
            del changed[at : at + int(random.integers(1, 9))]
        elif kind == 3 and changed:
            changed[at] ^= 1 << random.integers(8)
        elif kind == 4 and changed:
            changed[at] = random.choice([0, 1, 127, 128, 254, 255, 24, 25])
        elif len(changed) >= HEADER_BYTES:
            field = random.choice([8, 12])  # rows, dimension
            changed[field : field + 4] = struct.pack(
                "<I", random.choice([0, 1, 2, 33, 255, 257, 65536, 2**20, 2**32 - 1])
            )
    return bytes(changed)


def mutations(count: int) -> Iterator[bytes]:
    random, good = np.random.default_rng(8), streams()
    for number in range(count):
        data = mutated(good[number % len(good)], random)
        yield (data, signed(data), resized(data), resized(data))[number // len(good) % 4]


def test_mutated_and_truncated_streams_are_streams_or_errors_of_the_codec() -> None:
    read = 0
    for data in mutations(MUTATIONS):
        try:
            rows = decode(data)
        except CodecError:
            continue
        read += 1
        header = read_header(data)
        assert rows.shape == (header.rows, header.dimension)
    assert MUTATIONS // 50 < read < MUTATIONS // 2  # the mutations reach the parsers, and most of them are noticed


def test_every_truncation_and_every_flipped_bit_is_noticed() -> None:
    for stream in streams():
        for end in range(len(stream)):
            with pytest.raises(CodecError):
                decode(stream[:end])
        for at in range(0, 8 * len(stream), 3):
            flipped = bytearray(stream)
            flipped[at // 8] ^= 1 << at % 8
            with pytest.raises(CodecError):
                decode(flipped)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("rows", "dimension"), [(1, 65536), (2**20, 64), (2**21, 1), (1024, 65536), (255, 33)])
@pytest.mark.parametrize("body", [b"", bytes(200), b"\xff" * 200, zlib.compress(bytes(2**22))])
def test_a_large_shape_with_little_behind_it_allocates_little(
    mode: str, rows: int, dimension: int, body: bytes
) -> None:
    eps = 0.0 if mode == "raw" else 0.01
    fields = struct.pack("<4sBBHIIId", b"LAMC", 1, MODES.index(mode), 0, rows, dimension, 0, eps)
    stream = resized(fields + bytes(8) + body)
    allowed = 4 * rows * dimension if mode == "raw" and len(body) > 200 else 0
    tracemalloc.start()
    try:
        with pytest.raises(CodecError):
            decode(stream)
        assert tracemalloc.get_traced_memory()[1] < 2**18 + 300 * len(stream) + min(allowed, 2**23)
    finally:
        tracemalloc.stop()


HEADER_FIELDS = [
    ("magic", 0, b"LAMX"),
    ("version", 4, b"\x02"),
    ("mode", 5, b"\x03"),
    ("reserved", 6, b"\x01\x00"),
    ("rows", 8, struct.pack("<I", 2**32 - 1)),
    ("dimension", 12, struct.pack("<I", 0)),
    ("dimension", 12, struct.pack("<I", 2**16 + 1)),
    ("body", 16, struct.pack("<I", 5)),
    ("eps", 20, struct.pack("<d", 0.0)),
    ("eps", 20, struct.pack("<d", float("nan"))),
    ("eps", 20, struct.pack("<d", -1.0)),
    ("checksum", SUM_AT, bytes(8)),
]


@pytest.mark.parametrize(("field", "at", "value"), HEADER_FIELDS, ids=lambda part: str(part)[:20])
def test_a_field_that_is_wrong_is_named(field: str, at: int, value: bytes) -> None:
    stream = encode(embeddings(4, 40), 0.01)
    with pytest.raises(CodecError, match=f"^{field}: .* is not allowed; allowed: ") as caught:
        decode(stream[:at] + value + stream[at + len(value) :])
    assert caught.value.field == field and len(str(caught.value)) < 250


def test_a_bound_in_mode_raw_is_refused() -> None:
    stream = encode_raw(embeddings(4, 40))
    with pytest.raises(CodecError, match="^eps: 1.0 .*allowed: 0 in mode raw"):
        decode(signed(stream[:20] + struct.pack("<d", 1.0) + stream[28:]))


@pytest.mark.parametrize("stream", ["text", None, 7, memoryview(array("f", bytes(96))), memoryview(bytes(90))[::2]])
def test_what_is_no_bytes_is_refused(stream: bytes) -> None:
    for read in (decode, read_header):
        with pytest.raises(CodecError, match="^stream: "):
            read(stream)


def body_of(stream: bytes, body: bytes) -> bytes:
    return resized(stream[:HEADER_BYTES] + body)


def test_each_part_of_a_fixed_stream_is_checked() -> None:
    stream = encode(embeddings(2, 32), 0.01, "fixed")
    for body, field in [
        (bytes([25, 0, 0, 0]), "width"),
        (bytes([254, 0, 0, 0]), "width"),
        (bytes([1, 0, 0, 0]), "words"),
        (bytes(8), "words"),
        (bytes(2), "body"),
        (bytes(7), "body"),
    ]:
        with pytest.raises(CodecError, match=f"^{field}: "):
            decode(body_of(stream, body))


def group(*parts: bytes) -> bytes:
    data = b"".join(parts)
    return len(data).to_bytes(4, "little") + data


def test_each_part_of_a_dense_stream_is_checked() -> None:
    stream = encode(embeddings(2, 32), 0.01)
    ones = b"\xff" * 4
    for body, field in [
        (b"\x00", "body"),
        (b"\x09\x00\x00\x00\x00\x00", "group"),
        (group(b"\x00\x00", ones, ones) + b"\x00", "body"),
        (group(b"\x00"), "heads"),
        (group(b"\x1c\x00", ones, ones), "k"),
        (group(b"\x7f\x00", ones, ones), "k"),
        (group(b"\x80\x00"), "parents"),
        (group(b"\x00\x80\x00"), "scales"),
        (group(b"\xff\xff\x00"), "widths"),
        (group(b"\xff\xff\x19\x00"), "width"),
        (group(b"\x01\x00", ones[:3]), "words"),
        (group(b"\x00\x00", ones), "unary"),
        (group(b"\x00\x00", ones, ones, b"\x01"), "unary"),
        (group(b"\x00\x00", ones, ones, b"\x00"), "unary"),
        (group(b"\x80\x00\x00\x10", ones, ones), "parent"),
        (group(b"\x1b\x00", bytes(27 * 4), b"\x04", b"\xff" * 7, b"\x7f"), "unary"),
        (group(b"\x16\x00", bytes(22 * 4), b"\x04", b"\xff" * 7, b"\x7f"), "quantum"),
    ]:
        with pytest.raises(CodecError, match=f"^{field}: "):
            decode(body_of(stream, body))


def test_a_unary_part_longer_than_its_rows_may_have_is_refused_unread() -> None:
    stream = encode(embeddings(2, 32), 0.01)
    with pytest.raises(CodecError, match="^unary: 300 bytes is not allowed; allowed: at most 258 for 2 rows"):
        decode(body_of(stream, group(b"\x00\x00", bytes(300))))


def test_each_part_of_a_raw_stream_is_checked() -> None:
    stream = encode_raw(embeddings(2, 32))
    packed = zlib.compress(bytes(256))
    assert decode(body_of(stream, packed)).shape == (2, 32)
    for body in (b"", b"no zlib", zlib.compress(bytes(255)), zlib.compress(bytes(257)), packed[:-1], packed + b"\x00"):
        with pytest.raises(CodecError, match="^body: "):
            decode(body_of(stream, body))
