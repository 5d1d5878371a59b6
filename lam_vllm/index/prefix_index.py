"""The index of one conversation prefix: its windows, and their rows in segments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lam_vllm.codec import default_eps
from lam_vllm.encoders.base import Encoder, traits_of
from lam_vllm.index.nouns import PrefixWindows
from lam_vllm.index.segments import SEGMENT_ROWS, Segment, blocks, make_segment
from lam_vllm.memory import SeenWindow
from lam_vllm.ops.on_device import DeviceArrays

MOST_INDEX_BYTES = 4_000_000
"""Segments of one prefix: some 15,000 windows. Older ones are let go."""
_UNKNOWN_MAX_ABS = 4.0
"""Standard deviations of a coordinate: what is taken for the largest where an encoder's own was not measured."""


@dataclass(frozen=True, slots=True, eq=False)
class PrefixIndex:
    """Windows of the prefix `digest`, and the segments of their rows in order, None for one that was let go.

    The rows of a segment are all there or all gone; so are then the windows that they stand for.
    """

    digest: str
    eps: float
    embedding_error: float
    uncovered: int
    windows: tuple[SeenWindow, ...]
    segments: tuple[Segment | None, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the segments as they are kept."""
        return sum(len(segment.data) for segment in self.segments if segment is not None)

    @property
    def missing(self) -> int:
        """Windows that are named, and of whose rows nothing is kept."""
        return sum(self.segments[window.row // SEGMENT_ROWS] is None for window in self.windows)


@dataclass(frozen=True, slots=True)
class EncodedAs:
    """What all indexes of an encoder have in common: the codec's bound, and the device that encodes, if one does."""

    fingerprint: str
    dimension: int
    eps: float
    device: DeviceArrays | None = None

    @staticmethod
    def of(encoder: Encoder) -> EncodedAs:
        """Rows are encoded where the encoder runs."""
        traits = traits_of(encoder)
        device = traits.arrays if isinstance(traits.arrays, DeviceArrays) else None
        return EncodedAs(encoder.fingerprint, encoder.dimension, index_eps(traits.max_abs, encoder.dimension), device)

    def build(self, prefix: PrefixWindows, max_bytes: int = MOST_INDEX_BYTES) -> PrefixIndex:
        """The index of a prefix; see `build_index`."""
        return build_index(prefix, self.eps, max_bytes, self.device)


def build_index(
    prefix: PrefixWindows, eps: float, max_bytes: int = MOST_INDEX_BYTES, device: DeviceArrays | None = None
) -> PrefixIndex:
    """The index of a prefix, without its oldest segments where all of them take more than `max_bytes`.

    However the messages of the prefix came together, the same rows give the same bytes.

    Raises:
        CodecError: `eps` is nothing that can be encoded with.
    """
    segments = [make_segment(block, eps, device) for block in blocks(prefix.rows)]
    gone = _evicted([len(segment.data) for segment in segments], max_bytes)
    kept = (None,) * gone + tuple(segments[gone:])
    uncovered = prefix.without_gaps().uncovered
    return PrefixIndex(prefix.digest, eps, prefix.embedding_error, uncovered, prefix.windows, kept)


def index_eps(max_abs: float | None, dimension: int) -> float:
    """The codec's bound for an encoder: 1% of the largest coordinate it was seen to give, or of a careful guess."""
    return default_eps(_UNKNOWN_MAX_ABS / math.sqrt(dimension) if max_abs is None else max_abs)


def _evicted(sizes: Sequence[int], max_bytes: int) -> int:
    """How many of the first segments have to go so that the rest takes no more than the cap."""
    left = sum(sizes)
    for place, size in enumerate(sizes):
        if left <= max_bytes:
            return place
        left -= size
    return len(sizes)
