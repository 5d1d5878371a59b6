"""Matrices to encode: hypothesis makes them of any bits, or like embeddings, with hostile values put in."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from lam_vllm.codec.bounded import Values

HOSTILE = np.array(
    [
        np.nan,
        -np.nan,
        np.inf,
        -np.inf,
        0.0,
        -0.0,
        1e-45,
        -1e-42,
        1e-38,
        1.1754944e-38,
        3.4028235e38,
        -1e38,
        1.0,
        2.0**24,
    ],
    np.float32,
)
SIGNALLING = np.array([0x7F800001, 0xFFA00005, 0x7FC12345], np.uint32).view(np.float32)
"""NaNs with a payload, of which two are signalling: any arithmetic on them would change their bits."""

shapes = st.tuples(st.integers(0, 12), st.integers(1, 70))
bounds = st.floats(-42, 30).map(lambda exponent: float(10.0 ** max(-29.9, min(29.9, exponent))))


def any_bits() -> st.SearchStrategy[Values]:
    """Matrices of any fp32 numbers."""
    return shapes.flatmap(lambda shape: arrays(np.uint32, shape)).map(lambda bits: bits.view(np.float32))


@st.composite
def like_embeddings(draw: st.DrawFn) -> Values:
    """Rows that resemble or equal one another, at any scale, with a few hostile values among them."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    count, dimension = draw(st.tuples(st.integers(0, 40), st.integers(1, 100)))
    base = random.normal(size=(max(1, count // 3), dimension))
    rows = base[random.integers(0, len(base), count)] * random.choice([1.0, -0.5, 2.0], size=(count, 1))
    rows += draw(st.sampled_from([0.0, 0.01, 1.0])) * random.normal(size=rows.shape)
    with np.errstate(over="ignore", under="ignore"):
        matrix: Values = (rows * 10.0 ** draw(st.integers(-42, 38))).astype(np.float32)
    hostile = draw(st.integers(0, 3)) if matrix.size else 0
    matrix.reshape(-1)[random.integers(0, max(1, matrix.size), hostile)] = random.choice(HOSTILE, hostile)
    return matrix


matrices = st.one_of(any_bits(), like_embeddings())


def embeddings(count: int, dimension: int, seed: int = 0) -> Values:
    """Unit vectors that resemble one another as those of a conversation do; some are equal."""
    random = np.random.default_rng(seed)
    topics = random.normal(size=(max(1, count // 4), dimension))
    rows = topics[random.integers(0, len(topics), count)] + 0.6 * random.normal(size=(count, dimension))
    rows[count // 2 :: 5] = rows[0:1] if count else 0
    unit: Values = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return unit


def bits(matrix: Values) -> NDArray[np.uint32]:
    return np.ascontiguousarray(matrix).view(np.uint32)


def assert_kept(matrix: Values, decoded: Values, eps: float) -> None:
    """Every finite value within eps in float64 with no slack, every other bit for bit."""
    assert decoded.shape == matrix.shape and decoded.dtype == np.float32
    finite = np.isfinite(matrix)
    errors = np.abs(matrix[finite].astype(np.float64) - decoded[finite].astype(np.float64))
    assert (errors <= eps).all(), errors.max()
    assert (bits(matrix)[~finite] == bits(decoded)[~finite]).all()
