"""What a model returns for a window, held to be a unit vector."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lam_vllm.errors import EncoderError
from lam_vllm.types import Embedding

NORM_TOLERANCE = 1e-3


def unit(vector: NDArray[np.floating[Any]], name: str) -> Embedding:
    """The vector scaled to unit length in float64, which must have been nearly that.

    Raises:
        EncoderError: it was not; names the encoder and the norm.
    """
    wide = vector.astype(np.float64)
    norm = float(np.sqrt(np.square(wide).sum()))
    if not abs(norm - 1.0) <= NORM_TOLERANCE:  # written so that NaN fails too
        raise EncoderError(f"encoder {name!r} returned a vector of norm {norm}; expected 1 within {NORM_TOLERANCE}")
    return (wide / norm).astype(np.float32)
