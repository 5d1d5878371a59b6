"""What the paper's layers remove under one encoder, in the encoder's own tokens, and the t that it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lam_vllm.bound import delta_of
from lam_vllm.encoders.base import Encoder
from lam_vllm.evaluation.measures.layers import STUB_TOKENS, cut, exact_layer, near_layer
from lam_vllm.evaluation.measures.packing import Distances, greedy

WindowTokens: TypeAlias = NDArray[np.int64]  # (N,)
_HALVINGS = 15  # of [0, 1]: t to 3e-5


@dataclass(frozen=True, slots=True)
class LayerTokens:
    """Counts of one run, or the sum of several; `delta_hat` is the largest distance of a substitution."""

    observation_tokens: int = 0
    windows: int = 0
    dropped: int = 0
    l1_tokens: int = 0
    l0_after_l1_tokens: int = 0
    delta_hat: float = 0.0

    def __add__(self, other: LayerTokens) -> LayerTokens:
        return LayerTokens(
            self.observation_tokens + other.observation_tokens,
            self.windows + other.windows,
            self.dropped + other.dropped,
            self.l1_tokens + other.l1_tokens,
            self.l0_after_l1_tokens + other.l0_after_l1_tokens,
            max(self.delta_hat, other.delta_hat),
        )

    def shares(self) -> dict[str, float]:
        """Shares of the observation tokens, gross and net of `STUB_TOKENS` a dropped window; of nothing, 0."""
        stubs, both = self.dropped * STUB_TOKENS, self.l1_tokens + self.l0_after_l1_tokens
        removed = {
            "l1_gross": self.l1_tokens,
            "l1_net": self.l1_tokens - stubs,
            "l1_l0_gross": both,
            "l1_l0_net": both - stubs,
        }
        return {name: tokens / max(1, self.observation_tokens) for name, tokens in removed.items()}


def layer_tokens(texts: Sequence[str], encoder: Encoder, threshold_cos: float) -> LayerTokens:
    """What L1 removes of one run's texts, and L0 of the lines that are left."""
    pieces = cut(texts, encoder)
    near = near_layer(pieces, encoder.encode, encoder.dimension, threshold_cos)
    _, repeated = exact_layer(near.left, lambda line: len(encoder.token_offsets(line)))
    return LayerTokens(
        sum(piece.tokens for text in pieces for piece in text),
        sum(map(len, pieces)),
        near.dropped_windows,
        near.removed_tokens,
        repeated,
        near.delta_hat,
    )


def matching_threshold(runs: Sequence[tuple[WindowTokens, Distances]], l1_tokens: int) -> float:
    """A t at which L1 goes from removing more than `l1_tokens` of these runs to removing no more, by bisection.

    A run is the tokens of its windows and their distances. Greedy removal may rise here and there as t rises, so there
    may be another such t beside it.
    """
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        removed = sum(int(tokens[~greedy(distances, delta_of(middle)).retained].sum()) for tokens, distances in runs)
        low, high = (middle, high) if removed > l1_tokens else (low, middle)
    return high
