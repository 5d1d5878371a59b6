"""What the core asks of an encoder."""

from __future__ import annotations

from typing import Protocol

from lam_vllm.types import Embedding


class Encoder(Protocol):
    """Turns the text of a window into its canonical embedding: a pure function of the text, named by `fingerprint`."""

    @property
    def fingerprint(self) -> str:
        """Names everything that decides the bits of an embedding: model files, library versions, device, CPU kind."""

    @property
    def name(self) -> str:
        """What the encoder was asked for by."""

    @property
    def dimension(self) -> int:
        """D, the length of an embedding."""

    @property
    def window_tokens(self) -> int:
        """Content tokens that fit into the model at once, its special tokens not counted."""

    @property
    def threshold_cos(self) -> float:
        """t for this encoder: windows are near when their cosine is at least this."""

    def token_offsets(self, text: str) -> list[tuple[int, int]]:
        """Character spans of the text's content tokens. Never truncated; safe to call from several threads."""

    def encode(self, text: str) -> Embedding:
        """Canonical embedding of one window: (D,) float32 of unit length, owned by the caller.

        Raises:
            ValueError: the text has more than `window_tokens` tokens, so that the model would not see its end.
            EncoderError: the model returned something that is not a unit vector.
        """
