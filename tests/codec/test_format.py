"""The bytes: kept streams, the format written and read number by number, and the header field by field."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings

from lam_vllm.codec import decode, encode, encode_raw
from lam_vllm.codec.bounded import Values
from lam_vllm.codec.fixed import body_of, encode_blocks
from lam_vllm.codec.wire import HEADER_BYTES
from tests.codec import plain
from tests.codec.matrices import bits, bounds, embeddings, matrices

KEPT = json.loads((Path(__file__).parents[1] / "data/codec/streams.json").read_text(encoding="ascii"))
"""A changed byte of `fixed` or `dense` needs a new version of the format; zlib may write `raw` otherwise."""


def kept_rows(case: dict[str, Any]) -> Values:
    flat = np.frombuffer(base64.b64decode(case["rows"]), "<f4").astype(np.float32)
    return flat.reshape(case["shape"])


@pytest.mark.parametrize("case", KEPT, ids=lambda case: case["name"])
def test_kept_streams_are_written_and_read_as_before(case: dict[str, Any]) -> None:
    rows, streams = kept_rows(case), {mode: base64.b64decode(text) for mode, text in case["streams"].items()}
    assert encode(rows, case["eps"], "fixed") == streams["fixed"]
    assert encode(rows, case["eps"], "dense") == streams["dense"]
    assert (bits(decode(streams["raw"])) == bits(rows)).all()
    assert (bits(decode(streams["fixed"])) == bits(decode(streams["dense"]))).all()


def test_the_kept_streams_use_every_part_of_the_format() -> None:
    real, _, hostile = (base64.b64decode(case["streams"]["dense"]) for case in KEPT[:3])
    heads = real[HEADER_BYTES + 4 :][:10]
    assert any(128 <= head < 255 for head in heads) and any(head < 128 for head in heads)
    assert 255 in hostile[HEADER_BYTES + 4 :][:5]
    assert plain.ESCAPED in base64.b64decode(KEPT[2]["streams"]["fixed"])[HEADER_BYTES:][:10]


@settings(max_examples=60, deadline=None)
@given(matrices, bounds)
def test_blocks_are_written_as_number_by_number(matrix: Values, eps: float) -> None:
    assert body_of(encode_blocks(matrix, eps)) == plain.fixed_body(matrix, eps)


@settings(max_examples=60, deadline=None)
@given(matrices, bounds)
def test_streams_are_read_as_number_by_number(matrix: Values, eps: float) -> None:
    for stream in (encode(matrix, eps, "fixed"), encode(matrix, eps, "dense")):
        assert (bits(decode(stream)) == bits(plain.decoded(stream))).all()


@pytest.mark.parametrize("shape", [(300, 40), (256, 33), (530, 8)])
def test_streams_of_several_groups_are_read_as_number_by_number(shape: tuple[int, int]) -> None:
    stream = encode(embeddings(*shape), 0.004)
    assert (bits(decode(stream)) == bits(plain.decoded(stream))).all()


def test_the_header_is_36_bytes() -> None:
    matrix = embeddings(3, 40)
    stream = encode(matrix, 0.25, "fixed")
    fields = struct.pack("<4sBBHIIId", b"LAMC", 1, 1, 0, 3, 40, len(stream) - 36, 0.25)
    checksum = xxhash.xxh3_64_intdigest(fields + stream[36:])
    assert stream[:36] == fields + checksum.to_bytes(8, "little")
    assert encode_raw(matrix)[5] == 0 and encode(matrix, 0.25, "dense")[5] == 2


def test_rows_that_resemble_earlier_ones_take_less() -> None:
    matrix = embeddings(200, 384)
    fixed, dense = (len(encode(matrix, 0.0026, mode)) for mode in ("fixed", "dense"))
    unrelated = np.random.default_rng(0).normal(size=(200, 384)).astype(np.float32)
    unrelated *= np.linalg.norm(matrix[0]) / np.linalg.norm(unrelated[0])
    assert dense < 0.8 * fixed
    assert dense < 0.9 * len(encode(unrelated, 0.0026, "dense"))
