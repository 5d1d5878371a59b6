"""The paper's two layers by themselves and in both orders, on the texts of one run (its table 12).

L1 cuts each text into fixed windows of the encoder and drops one that lies within delta of a retained window of the
same run. L0 drops lines that are byte-equal to an earlier kept line of the run; the first one stays. Tokens are the
encoder's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import TypeAlias

from lam_vllm.encoders.base import Encoder, OnePass
from lam_vllm.near_duplicates import RetainedWindows, find_match
from lam_vllm.types import Embedding
from lam_vllm.windows import fixed_windows

STUB_TOKENS = 14
"""What net figures charge for each dropped window, as the paper's stubs cost."""

Encode: TypeAlias = Callable[[str], Embedding]


@dataclass(frozen=True, slots=True)
class Piece:
    """The text of one window, and its tokens."""

    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class NearLayer:
    """What L1 did: the text that is left of each of the given texts, and what that took."""

    left: tuple[str, ...]
    dropped_windows: int
    removed_tokens: int
    boundary_pairs: int
    delta_hat: float


@dataclass(frozen=True, slots=True)
class LayerOrders:
    """Tokens that the layers remove at one t, alone and behind one another, from one run or from several (`+`).

    The properties are shares of `observation_tokens` in 0..1; net ones charge `STUB_TOKENS` for each dropped window.
    """

    observation_tokens: int
    windows: int
    dropped_windows: int
    l0_tokens: int
    l1_tokens: int
    l0_after_l1_tokens: int
    l1_after_l0_tokens: int
    dropped_after_l0_windows: int
    boundary_pairs: int
    delta_hat: float

    def __add__(self, other: LayerOrders) -> LayerOrders:
        sums = {field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)}
        return LayerOrders(**{**sums, "delta_hat": max(self.delta_hat, other.delta_hat)})

    @property
    def l0(self) -> float:
        """L0 alone."""
        return self._share(self.l0_tokens)

    @property
    def l1(self) -> float:
        """L1 alone, gross."""
        return self._share(self.l1_tokens)

    @property
    def l1_net(self) -> float:
        """L1 alone, net."""
        return self._share(self.l1_tokens - STUB_TOKENS * self.dropped_windows)

    @property
    def l1_then_l0(self) -> float:
        """L1, then L0 over the lines that are left: the paper's order, gross."""
        return self._share(self.l1_tokens + self.l0_after_l1_tokens)

    @property
    def l1_then_l0_net(self) -> float:
        """The same, net."""
        return self._share(self.l1_tokens + self.l0_after_l1_tokens - STUB_TOKENS * self.dropped_windows)

    @property
    def l0_then_l1(self) -> float:
        """L0, then L1 over windows cut out of what is left, gross."""
        return self._share(self.l0_tokens + self.l1_after_l0_tokens)

    @property
    def l0_then_l1_net(self) -> float:
        """The same, net."""
        stubs = STUB_TOKENS * self.dropped_after_l0_windows
        return self._share(self.l0_tokens + self.l1_after_l0_tokens - stubs)

    @property
    def independence_estimate(self) -> float:
        """What both would remove, gross, if each took its share of whatever it is given: 1 - (1 - l0)(1 - l1)."""
        return 1 - (1 - self.l0) * (1 - self.l1)

    def _share(self, tokens: int) -> float:
        return tokens / max(1, self.observation_tokens)


def layer_orders(texts: Sequence[str], encoder: Encoder, thresholds_cos: Iterable[float]) -> dict[float, LayerOrders]:
    """What the layers remove from one run, for every t.

    Each window is cut and encoded once, whatever the number of thresholds: those of the texts as they are, and those
    of what L0 leaves.
    """
    encode, count = cache(encoder.encode), cache(lambda line: len(encoder.token_offsets(line)))
    pieces = cut(texts, encoder)
    left, l0_tokens = exact_layer(texts, count)
    left_pieces = cut(left, encoder)
    orders = {}
    for threshold_cos in thresholds_cos:
        first = near_layer(pieces, encode, encoder.dimension, threshold_cos)
        second = near_layer(left_pieces, encode, encoder.dimension, threshold_cos)
        orders[threshold_cos] = LayerOrders(
            observation_tokens=sum(piece.tokens for text in pieces for piece in text),
            windows=sum(map(len, pieces)),
            dropped_windows=first.dropped_windows,
            l0_tokens=l0_tokens,
            l1_tokens=first.removed_tokens,
            l0_after_l1_tokens=exact_layer(first.left, count)[1],
            l1_after_l0_tokens=second.removed_tokens,
            dropped_after_l0_windows=second.dropped_windows,
            boundary_pairs=first.boundary_pairs,
            delta_hat=first.delta_hat,
        )
    return orders


def cut(texts: Iterable[str], encoder: Encoder) -> tuple[tuple[Piece, ...], ...]:
    """The fixed windows of each text, which tile it."""
    return tuple(
        tuple(
            Piece(text[window.start : window.end], window.tokens)
            for window in fixed_windows(text, encoder.token_offsets, encoder.window_tokens)
        )
        for text in texts
    )


def near_layer(texts: Sequence[Sequence[Piece]], encode: Encode, dimension: int, threshold_cos: float) -> NearLayer:
    """L1 over the windows of the texts of one run, in order; `encode` gives (D,) with D = `dimension`."""
    retained = RetainedWindows(dimension)
    removed, distances, boundary_pairs = 0, [], 0
    left = []
    for pieces in texts:
        kept = []
        for piece in pieces:
            found = find_match(piece.text, OnePass(encode), retained, threshold_cos)
            boundary_pairs += found.boundary_pairs
            if found.match is None:
                retained.add(piece.text, found.embedding, eligible=True)
                kept.append(piece.text)
            else:
                removed += piece.tokens
                distances.append(found.match.distance)
        left.append("".join(kept))
    return NearLayer(tuple(left), len(distances), removed, boundary_pairs, max(distances, default=0.0))


def exact_layer(texts: Iterable[str], count_tokens: Callable[[str], int]) -> tuple[tuple[str, ...], int]:
    """L0 over the lines of the texts of one run: what is left of each text, and the tokens of the lines that went."""
    seen: set[str] = set()
    left, tokens = [], 0
    for text in texts:
        kept = []
        for line in text.split("\n"):
            if line in seen:
                tokens += count_tokens(line)
            else:
                seen.add(line)
                kept.append(line)
        left.append("\n".join(kept))
    return tuple(left), tokens
