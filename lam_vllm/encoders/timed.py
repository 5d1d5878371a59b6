"""An encoder whose time is counted."""

from __future__ import annotations

from lam_vllm.encoders.base import Encoder
from lam_vllm.stopwatch import Stopwatch


class TimedEncoder:
    """The same encoder; its seconds count under the stages `windows` (tokenising) and `encode`."""

    def __init__(self, encoder: Encoder, watch: Stopwatch) -> None:
        self.fingerprint = encoder.fingerprint
        self.name = encoder.name
        self.dimension = encoder.dimension
        self.window_tokens = encoder.window_tokens
        self.threshold_cos = encoder.threshold_cos
        self.token_offsets = watch.timed("windows", encoder.token_offsets)
        self.encode = watch.timed("encode", encoder.encode)
