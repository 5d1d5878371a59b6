"""The encoder as one compaction uses it, its time counted."""

from __future__ import annotations

from lam_vllm.encoders.base import Embedder, Embeddings, Encoder, OnePass, traits_of
from lam_vllm.stopwatch import Stopwatch


class RequestEncoder:
    """`Embeddings`, and how windows are cut; seconds count under the stages `windows` (tokenising) and `encode`.

    `works_ahead` says that naming windows early saves time. With `canonical`, every embedding is canonical, made anew;
    with `canonical_only`, every one is canonical. In the `background` nothing is
    encoded while a request waits.
    """

    def __init__(
        self,
        encoder: Encoder,
        watch: Stopwatch,
        salt: str,
        *,
        canonical: bool = False,
        canonical_only: bool = False,
        background: bool = False,
    ) -> None:
        embeddings: Embeddings = OnePass(encoder.encode, traits_of(encoder).arrays)
        if isinstance(encoder, Embedder) and not canonical:
            embeddings = encoder.embeddings(salt, canonical_only=canonical_only, background=background)
        self.window_tokens = encoder.window_tokens
        self.threshold_cos = encoder.threshold_cos
        self.token_offsets = watch.timed("windows", encoder.token_offsets)
        self.guard_band = embeddings.guard_band
        self.arrays = embeddings.arrays
        self.encoded = embeddings.encoded
        self.works_ahead = not isinstance(embeddings, OnePass)
        self.prepare = embeddings.prepare
        self.embed = watch.timed("encode", embeddings.embed)
        self.canonical = watch.timed("encode", embeddings.canonical)
