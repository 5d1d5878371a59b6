"""What a model returns for a window, held to be a unit vector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lam_vllm.errors import EncoderError
from lam_vllm.types import Embedding

if TYPE_CHECKING:
    from torch import Tensor

NORM_TOLERANCE = 1e-3


def unit(vector: NDArray[np.floating[Any]], name: str) -> Embedding:
    """The vector scaled to unit length in float64, which must have been nearly that.

    Raises:
        EncoderError: it was not; names the encoder and the norm.
    """
    wide = vector.astype(np.float64)
    norm = float(np.sqrt(np.square(wide).sum()))
    if not abs(norm - 1.0) <= NORM_TOLERANCE:  # written so that NaN fails too
        raise _no_unit(name, norm)
    return (wide / norm).astype(np.float32)


def unit_tensor(vectors: Tensor, name: str) -> Tensor:
    """The same of each row of a (N, D) tensor, which stays on its device: (N, D) float32.

    Raises:
        EncoderError: as `unit`, for the first row that was not nearly of unit length.
    """
    import torch

    with torch.inference_mode():
        wide = vectors.double()
        norms = wide.square().sum(dim=1, keepdim=True).sqrt()
        wrong = ~((norms - 1.0).abs() <= NORM_TOLERANCE)
        if bool(wrong.any()):
            raise _no_unit(name, float(norms[wrong][0]))
        return (wide / norms).float().contiguous()


def _no_unit(name: str, norm: float) -> EncoderError:
    return EncoderError(f"encoder {name!r} returned a vector of norm {norm}; expected 1 within {NORM_TOLERANCE}")
