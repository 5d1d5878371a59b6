"""Encoders: text of one window to a unit vector, the same bits each time."""

from lam_vllm.encoders.base import Encoder
from lam_vllm.encoders.load import load_encoder

__all__ = ["Encoder", "load_encoder"]
