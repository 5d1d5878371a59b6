"""What every stream promises: the bound, equal rows, bytes that depend on nothing else, and memory of one's own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import get_args

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lam_vllm.codec import CodecError, decode, default_eps, encode, encode_raw, read_header
from lam_vllm.codec.bounded import LEAST_EPS, MOST_EPS, Values
from lam_vllm.codec.wire import MODES, Mode
from tests.codec.matrices import HOSTILE, SIGNALLING, assert_kept, bits, bounds, embeddings, matrices

BOUNDED: tuple[Mode, ...] = ("fixed", "dense")
modes = st.sampled_from(BOUNDED)


@settings(max_examples=400, deadline=None)
@given(matrices, bounds, modes)
@example(np.tile(HOSTILE, (3, 5)), 0.01, "fixed")
@example(np.tile(HOSTILE, (3, 5)), 0.01, "dense")
@example(np.tile(SIGNALLING, (3, 5)), 0.01, "dense")
def test_every_value_is_within_the_bound(matrix: Values, eps: float, mode: Mode) -> None:
    assert_kept(matrix, decode(encode(matrix, eps, mode)), eps)


@settings(max_examples=150, deadline=None)
@given(matrices, st.integers(-22, -1), modes)
def test_the_bound_holds_where_it_is_a_small_or_large_share_of_the_values(
    matrix: Values, share: int, mode: Mode
) -> None:
    largest = float(np.abs(np.where(np.isfinite(matrix), matrix, 0)).max(initial=0))
    eps = min(MOST_EPS, max(LEAST_EPS, largest * 2.0**share))
    assert_kept(matrix, decode(encode(matrix, eps, mode)), eps)


@pytest.mark.parametrize("mode", BOUNDED)
def test_a_million_values_between_two_quanta_keep_the_bound(mode: Mode) -> None:
    eps = 0.0026314452
    near = np.arange(-(2**19), 2**19, dtype=np.float64).reshape(-1, 1024) % 100
    matrix = ((2 * near + 1) * eps).astype(np.float32)
    assert_kept(matrix, decode(encode(matrix, eps, mode)), eps)


@settings(max_examples=150, deadline=None)
@given(matrices, bounds, modes, st.integers(0, 2**32))
def test_equal_rows_decode_to_equal_rows_wherever_they_stand(matrix: Values, eps: float, mode: Mode, seed: int) -> None:
    places = np.random.default_rng(seed).integers(0, max(1, len(matrix)), 2 * len(matrix))
    decoded = decode(encode(matrix[places], eps, mode))
    alone = decode(encode(matrix, eps, mode))
    assert (bits(decoded) == bits(alone)[places]).all()


@settings(max_examples=100, deadline=None)
@given(matrices, bounds)
def test_both_modes_decode_to_the_same_values(matrix: Values, eps: float) -> None:
    fixed, dense = (decode(encode(matrix, eps, mode)) for mode in BOUNDED)
    assert (bits(fixed) == bits(dense)).all()


@settings(max_examples=100, deadline=None)
@given(matrices)
@example(np.tile(SIGNALLING, (2, 1)))
def test_the_lossless_twin_keeps_every_bit(matrix: Values) -> None:
    decoded = decode(encode_raw(matrix))
    assert decoded.shape == matrix.shape and (bits(decoded) == bits(matrix)).all()


@pytest.mark.parametrize("mode", BOUNDED)
@pytest.mark.parametrize("shape", [(0, 1), (0, 384), (1, 1), (1, 384), (1, 33), (300, 1), (257, 31), (513, 64)])
def test_every_shape_has_a_stream(shape: tuple[int, int], mode: Mode) -> None:
    matrix = embeddings(*shape)
    assert_kept(matrix, decode(encode(matrix, 0.01, mode)), 0.01)
    assert (bits(decode(encode_raw(matrix))) == bits(matrix)).all()


def test_zeros_stay_zeros_and_lose_their_sign() -> None:
    decoded = decode(encode(np.array([[0.0, -0.0, 1e-42, -1e-42]], np.float32), 0.001))
    assert (bits(decoded) == 0).all()


def test_a_value_that_would_miss_the_bound_is_kept_as_it_is() -> None:
    matrix = np.array([[1e9, 1.0, np.pi]], np.float32)
    assert (bits(decode(encode(matrix, 0.01))) == bits(matrix)).all()


@pytest.mark.parametrize("mode", BOUNDED)
def test_the_layout_of_the_matrix_in_memory_does_not_matter(mode: Mode) -> None:
    matrix = embeddings(20, 96)
    same = (np.asfortranarray(matrix), np.repeat(matrix, 2, axis=1)[:, ::2], np.flip(np.flip(matrix, 0).copy(), 0))
    assert {encode(other, 0.002, mode) for other in same} == {encode(matrix, 0.002, mode)}
    assert {encode_raw(other) for other in same} == {encode_raw(matrix)}
    assert encode_raw(matrix[:, :1]) == encode_raw(matrix[:, :1].copy())


@pytest.mark.parametrize("matrix", [embeddings(40, 96), embeddings(0, 8), np.ones((1, 1), np.float32)])
def test_what_is_decoded_is_the_callers_own(matrix: Values) -> None:
    for stream in (encode(matrix, 0.002, "fixed"), encode(matrix, 0.002), encode_raw(matrix)):
        one, other = decode(stream), decode(bytearray(stream))
        assert one.flags.writeable and one.flags.c_contiguous
        one[:] = 7
        assert (bits(decode(memoryview(stream))) == bits(other)).all()


def test_the_bytes_are_the_same_whatever_kernels_the_machine_has() -> None:
    code = (
        "import hashlib; from lam_vllm.codec import encode; from tests.codec.matrices import embeddings;"
        "rows = embeddings(600, 384);"
        "print(*(hashlib.sha256(encode(rows, eps, mode)).hexdigest()"
        " for eps in (3e-3, 3e-5, 1e-7) for mode in ('fixed', 'dense')))"
    )
    said = set()
    for variables in ({}, {"OPENBLAS_CORETYPE": "Prescott", "OPENBLAS_NUM_THREADS": "2"}):
        ran = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **variables}, capture_output=True, text=True, check=True
        )
        said.add(ran.stdout)
    assert len(said) == 1


def test_a_header_says_what_the_stream_is() -> None:
    matrix = embeddings(5, 40)
    for mode in BOUNDED:
        header = read_header(encode(matrix, 0.25, mode))
        assert (header.version, header.mode, header.rows, header.dimension, header.eps) == (1, mode, 5, 40, 0.25)
    assert (read_header(encode_raw(matrix)).mode, read_header(encode_raw(matrix)).eps) == ("raw", 0.0)
    assert get_args(Mode) == MODES


def test_the_default_bound_is_a_hundredth_of_the_largest_value() -> None:
    assert default_eps(0.2631) == pytest.approx(0.002631)


@pytest.mark.parametrize("eps", [0.0, -0.01, float("nan"), float("inf"), 1e-31, 1e31, 10**400, "0.01", None])
def test_a_bound_that_is_none_is_refused(eps: float) -> None:
    with pytest.raises(CodecError, match="^eps: .* is not allowed; allowed: a number from 1e-30 to 1e"):
        encode(embeddings(2, 8), eps)
    with pytest.raises(CodecError, match=r"^eps: "):
        default_eps(float("nan"))


@pytest.mark.parametrize(
    "rows",
    [
        [[1.0]],
        np.zeros(4, np.float32),
        np.zeros((2, 2, 2), np.float32),
        np.zeros((2, 2)),
        np.zeros((2, 2), np.int32),
        np.zeros((2, 2), ">f4"),
    ],
)
def test_what_is_no_float32_matrix_is_refused(rows: Values) -> None:
    allowed = "^rows: .*allowed: (a numpy array|2 axes of float32)"
    with pytest.raises(CodecError, match=allowed):
        encode(rows, 0.01)
    with pytest.raises(CodecError, match=allowed):
        encode_raw(rows)


def test_a_shape_that_is_too_large_or_has_no_columns_is_refused() -> None:
    with pytest.raises(CodecError, match="^dimension: 0 "):
        encode(np.zeros((3, 0), np.float32), 0.01)
    with pytest.raises(CodecError, match="^dimension: 65537 "):
        encode(np.zeros((1, 65537), np.float32), 0.01)
    with pytest.raises(CodecError, match="^rows: 2097153 .*allowed: 0 to 2097152 of dimension 1"):
        encode(np.zeros((2**21 + 1, 1), np.float32), 0.01)
    with pytest.raises(CodecError, match="^rows: 1025 .*allowed: 0 to 1024 of dimension 65536"):
        encode(np.broadcast_to(np.float32(0), (1025, 65536)), 0.01)


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(CodecError, match="^mode: raw is not allowed; allowed: fixed or dense"):
        encode(embeddings(2, 8), 0.01, "raw")
