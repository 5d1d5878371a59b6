"""Unit vectors for tests of searches, many of them where a search could go wrong."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lam_vllm.types import Embedding


def unit(vectors: NDArray[np.float64]) -> Embedding:
    """Each vector at unit length."""
    scaled: Embedding = (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)
    return scaled


def near_threshold(rng: np.random.Generator, query: Embedding, threshold_cos: float, count: int) -> Embedding:
    """Rows whose cosine with the query is the threshold, give or take 1e-8 to 1e-3."""
    side = rng.standard_normal((count, query.shape[0]))
    side -= np.outer(side @ query, query)
    side /= np.linalg.norm(side, axis=1, keepdims=True)
    cosines = np.clip(threshold_cos + rng.choice([-1, 1], count) * 10.0 ** rng.uniform(-8, -3, count), -1, 1)
    return unit(cosines[:, None] * query + np.sqrt(1 - cosines**2)[:, None] * side)


def mixed_rows(seed: int, dimension: int, threshold_cos: float, count: int) -> tuple[Embedding, Embedding]:
    """A query, and 3 `count` + 1 rows: random ones, ones near the threshold, ones near the query, and the query."""
    rng = np.random.default_rng(seed)
    query = unit(rng.standard_normal(dimension))
    far = unit(rng.standard_normal((count, dimension)))
    close = unit(query + 10.0 ** rng.uniform(-6, -1, (count, 1)) * rng.standard_normal((count, dimension)))
    border = near_threshold(rng, query, threshold_cos, count)
    return query, rng.permutation(np.concatenate([far, border, close, query[None]]))


def some_basis(seed: int, count: int, dimension: int) -> NDArray[np.float64]:
    """(count, D): random orthonormal rows."""
    square = np.random.default_rng(seed).standard_normal((dimension, count))
    basis: NDArray[np.float64] = np.linalg.qr(square)[0].T
    return basis
