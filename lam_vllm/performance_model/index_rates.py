"""How quickly this machine makes and reads what an index of embeddings is kept as: quanta, and the codec's bytes."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from lam_vllm.codec import decode, default_eps, encode
from lam_vllm.ops.reference import band_quanta
from lam_vllm.performance_model.compaction import QUANTIZED_BYTES
from lam_vllm.performance_model.rates import best_seconds

ROWS = 256
"""Of one stream: a full segment of an index."""
EPS_OF_SIGMA = 0.2
"""Step of the quanta that a search is narrowed by, as a share of a coordinate's deviation (the paper's table 26)."""


@dataclass(frozen=True, slots=True)
class CodecRates:
    """Bytes of fp32 rows per second on one core, by mode of the stream."""

    encode_fixed: float
    decode_fixed: float
    encode_dense: float
    decode_dense: float


def quantize_rate(dimension: int) -> float:
    """Bytes per second of Q_eps over embeddings, each coordinate counted as the formulas do."""
    rows = _unit_rows(dimension)
    seconds = best_seconds(lambda: band_quanta(rows, EPS_OF_SIGMA / sqrt(dimension)))
    return QUANTIZED_BYTES * rows.size / seconds


def codec_rates(dimension: int) -> CodecRates:
    """The codec at its default bound, 1% of the largest coordinate.

    The rows are drawn at random: nothing in them predicts another, so that `dense` finds no more than `fixed` does.
    """
    rows = _unit_rows(dimension)
    eps = default_eps(float(np.abs(rows).max()))
    fixed, dense = encode(rows, eps, "fixed"), encode(rows, eps, "dense")
    return CodecRates(
        encode_fixed=rows.nbytes / best_seconds(lambda: encode(rows, eps, "fixed")),
        decode_fixed=rows.nbytes / best_seconds(lambda: decode(fixed)),
        encode_dense=rows.nbytes / best_seconds(lambda: encode(rows, eps, "dense")),
        decode_dense=rows.nbytes / best_seconds(lambda: decode(dense)),
    )


def _unit_rows(dimension: int) -> NDArray[np.float32]:
    rows = np.random.default_rng(0).standard_normal((ROWS, dimension))
    unit: NDArray[np.float32] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return unit
