"""What the core asks of an encoder, and what it asks for during one compaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from lam_vllm.encoders.device import CPU, Device
from lam_vllm.ops.arrays import HOST, Arrays
from lam_vllm.types import Embedding


@dataclass(frozen=True, slots=True)
class Traits:
    """What else is known of an encoder. `device` is where it runs, `arrays` are the array operations there.

    `max_abs` is the largest |x| of any coordinate over the calibration sample, `basis` the .npy file of an orthonormal
    basis for `search: pruned`: both from the encoder's profile, None where it names none. `embedding_error` is the most
    that an embedding of its fast pass may be away (l2) from the canonical one: see `two_pass.FastPass`; 0 where it has
    none. Embeddings of a compaction without a guard band are canonical.
    """

    max_abs: float | None = None
    basis: str | None = None
    device: Device = CPU
    arrays: Arrays = HOST
    embedding_error: float = 0.0


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


@runtime_checkable
class Traited(Protocol):
    """An encoder that has traits."""

    @property
    def traits(self) -> Traits:
        """What else is known of it."""


def traits_of(encoder: Encoder) -> Traits:
    """The encoder's traits; the defaults where it has none, as encoders that others write."""
    return encoder.traits if isinstance(encoder, Traited) else Traits()


class EncoderLike:
    """An encoder around another one: described as that one is, and it cuts windows as that one does."""

    def __init__(self, encoder: Encoder) -> None:
        self.fingerprint = encoder.fingerprint
        self.name = encoder.name
        self.dimension = encoder.dimension
        self.window_tokens = encoder.window_tokens
        self.threshold_cos = encoder.threshold_cos
        self.token_offsets = encoder.token_offsets
        self.traits = traits_of(encoder)


@dataclass(frozen=True, slots=True)
class Pass:
    """A way of encoding several texts at once: `label` says it in words, `batch` is the most texts in one call.

    `canonical` says that it gives the bits of `Encoder.encode`.
    """

    label: str
    precision: str
    batch: int
    canonical: bool = False


class BatchEncoder(Encoder, Protocol):
    """An encoder with quicker ways to embeddings that are nearly the canonical ones."""

    def passes(self) -> Sequence[Pass]:
        """Every way there is on this machine, at least one; which one is quickest has to be measured."""

    def encode_batch(self, texts: Sequence[str], way: Pass) -> Embedding:
        """(N, D) float32 of unit length, near the canonical embeddings of 1 to `way.batch` texts, in their order.

        Raises:
            ValueError, EncoderError: as `encode`, for any of the texts.
        """


@dataclass(slots=True)
class Encoded:
    """Windows that one compaction had encoded: once each, and again canonically. `remembered` ones took no work."""

    once: int = 0
    again: int = 0
    remembered: int = 0


class Embeddings(Protocol):
    """Embeddings for one compaction. Those of `embed` lie within `guard_band` (in cosine, of any pair) of canonical."""

    @property
    def encoded(self) -> Encoded:
        """What it took so far."""

    @property
    def guard_band(self) -> float:
        """0 where `embed` gives canonical embeddings."""

    @property
    def arrays(self) -> Arrays:
        """The array operations of the device on which the embeddings are made."""

    def prepare(self, texts: Sequence[str]) -> None:
        """These are going to be asked for: work on them may begin, together."""

    def embed(self, text: str) -> Embedding:
        """(D,) float32 of unit length; the caller may keep it and must not change it. Raises as `Encoder.encode`."""

    def canonical(self, text: str) -> Embedding:
        """The canonical embedding, in the same form."""


@runtime_checkable
class Embedder(Protocol):
    """Something that embeds windows for many compactions at once: see `encoders.pool`."""

    def embeddings(self, salt: str, *, canonical_only: bool = False, background: bool = False) -> Embeddings:
        """For one compaction under this salt; nothing that is remembered crosses from one salt to another.

        With `canonical_only`, `embed` gives canonical embeddings. In the `background` nothing is encoded while a
        request waits, however long that is.
        """


class OnePass:
    """`Embeddings` straight from `encode`: each one canonical, made when it is asked for."""

    guard_band = 0.0

    def __init__(self, encode: Callable[[str], Embedding], arrays: Arrays = HOST) -> None:
        self.encoded = Encoded()
        self.arrays = arrays
        self._encode = encode

    def prepare(self, texts: Sequence[str]) -> None:
        """Nothing is begun early."""

    def embed(self, text: str) -> Embedding:
        """The canonical embedding of the text."""
        self.encoded.once += 1
        return self._encode(text)

    canonical = embed
