"""The definition of the distance: its bits, its order of summation, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from lam_vllm.ops.reference import l2_distances

DIMENSIONS = (1, 31, 32, 33, 384, 768)

GOLDEN = {
    1: ["0x1.9660000000000p-12", "0x1.0f36320000000p-3", "0x1.11d107f800000p-2"],
    31: ["0x1.224961d0fcd4bp+1", "0x1.24f1917037261p+1", "0x1.0b7082361cfcap+1"],
    32: ["0x1.296f18dae8b88p+1", "0x1.19d3dff2a47d2p+1", "0x1.2bf6255b81139p+1"],
    33: ["0x1.0d74753f68e5fp+1", "0x1.136c4b1c55a9dp+1", "0x1.3810a15361447p+1"],
    384: ["0x1.efc150f9cf79fp+2", "0x1.0b6032d120c5dp+3", "0x1.e721ff5c55ea7p+2"],
    768: ["0x1.65c8bab156357p+3", "0x1.6bd6985964ef7p+3", "0x1.79bf7ac7e33acp+3"],
}


def _numbers(count: int, seed: int) -> NDArray[np.float32]:
    """Numbers in [-0.5, 0.5) from a fixed recurrence, so that no library's random stream is part of the golden bits."""
    state, values = seed, []
    for _ in range(count):
        state = (state * 1664525 + 1013904223) % 2**32
        values.append(state / 2**32 - 0.5)
    return np.array(values, dtype=np.float32)


def _inputs(dimension: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    return _numbers(3 * dimension, seed=dimension).reshape(3, dimension), _numbers(dimension, seed=1 + dimension)


def _plain_distance(row: list[float], query: list[float]) -> float:
    lanes = [0.0] * 32
    for d, (a, b) in enumerate(zip(row, query, strict=True)):
        lanes[d % 32] = lanes[d % 32] + (a - b) * (a - b)
    for half in (16, 8, 4, 2, 1):
        lanes = [lanes[i] + lanes[i + half] for i in range(half)]
    return math.sqrt(lanes[0])


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_distances_equal_the_plain_loop_bit_for_bit(dimension: int) -> None:
    rows, query = _inputs(dimension)
    expected = [_plain_distance(row, query.tolist()) for row in rows.tolist()]
    assert l2_distances(rows, query).tolist() == expected


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_distances_have_the_golden_bits(dimension: int) -> None:
    assert [value.hex() for value in l2_distances(*_inputs(dimension)).tolist()] == GOLDEN[dimension]


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_memory_layout_does_not_change_the_bits(dimension: int) -> None:
    rows, query = _inputs(dimension)
    doubled = np.repeat(rows, 2, axis=1)[:, ::2]
    expected = l2_distances(rows, query).tobytes()
    assert l2_distances(np.asfortranarray(rows), query).tobytes() == expected
    assert l2_distances(doubled, query).tobytes() == expected
    assert b"".join(l2_distances(row[None], query).tobytes() for row in rows) == expected


def test_identical_vectors_are_at_distance_zero() -> None:
    query = _numbers(384, seed=7)
    assert l2_distances(query[None], query).tolist() == [0.0]


def test_no_rows_give_no_distances() -> None:
    result = l2_distances(np.zeros((0, 384), np.float32), np.zeros(384, np.float32))
    assert result.shape == (0,)
    assert result.dtype == np.float64


@pytest.mark.parametrize(
    ("rows", "query", "message"),
    [
        ([[0.0]], np.zeros(1, np.float32), "rows: list"),
        (np.zeros((2, 3)), np.zeros(3, np.float32), r"rows: shape \(2, 3\) of float64"),
        (np.zeros(3, np.float32), np.zeros(3, np.float32), r"rows: shape \(3,\)"),
        (np.zeros((2, 3), np.float32), np.zeros((1, 3), np.float32), r"query: shape \(1, 3\)"),
        (np.zeros((2, 3), np.float32), np.zeros(3, np.float16), r"query: shape \(3,\) of float16"),
        (np.zeros((2, 3), np.float32), np.zeros(4, np.float32), "query: dimension 4 is not allowed; allowed: 3"),
    ],
)
def test_wrong_shapes_and_types_are_refused_by_name(rows: object, query: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        l2_distances(rows, query)  # type: ignore[arg-type]
