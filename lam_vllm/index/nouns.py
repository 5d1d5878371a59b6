"""What goes into an index of a conversation prefix, and what a search of it says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from lam_vllm.memory import SeenWindow
from lam_vllm.types import Embedding


class Gap(NamedTuple):
    """Characters `start:end` of an observation's `text` that are in no window and still in the prompt."""

    message: int
    part: int | None
    result: int
    start: int
    end: int
    text: str

    @property
    def own_text(self) -> str:
        """The characters themselves."""
        return self.text[self.start : self.end]


@dataclass(frozen=True, slots=True, eq=False)
class PrefixWindows:
    """Every window of a conversation prefix that was looked at, by message, and the embeddings of the retained ones.

    `digest` names the prefix as its report does, and `earlier` those that it extends, the shortest first. `rows` is
    (N, D) float32, read-only, of unit length; nobody changes it. They are the embeddings that this process made: none
    is further than `embedding_error` (l2) from the canonical one, by measurement. `gaps` are still to become windows,
    at most `max_windows`; `uncovered` characters are in none.
    """

    digest: str
    earlier: tuple[str, ...]
    windows: tuple[SeenWindow, ...]
    rows: Embedding
    embedding_error: float = 0.0
    gaps: tuple[Gap, ...] = ()
    max_windows: int = 0
    uncovered: int = 0

    def without_gaps(self) -> PrefixWindows:
        """The prefix with what is in its gaps left out."""
        return replace(self, gaps=(), uncovered=self.uncovered + sum(gap.end - gap.start for gap in self.gaps))


class Dropped(NamedTuple):
    """A window that is not in the index: a hit stands for it, at this l2 `distance` or less."""

    message: int
    part: int | None
    result: int
    start: int
    end: int
    distance: float


@dataclass(frozen=True, slots=True)
class Hit:
    """A window of tool output: characters `start:end` of a text of message `message`, as it arrived.

    `part` is the index in a parts list, None where the content is a string; `result` the ordinal of the tool result,
    from 1. `score` is the cosine of the query and the window's decoded embedding. What each of the `dropped` windows,
    and this one, would have scored by its canonical embedding in fp32 differs from it by `total` at most: by the
    largest of their distances, `delta_hat`; by what the codec changed, `codec_error`; by `embedding_error`, which
    bounds how far the embeddings that the server made are from canonical ones (measured with a safety factor, not
    proved; 0 where they are canonical); and by `rounding` of float64 sums. `text` is there where messages were.
    """

    score: float
    message: int
    part: int | None
    result: int
    start: int
    end: int
    delta_hat: float
    codec_error: float
    embedding_error: float
    rounding: float
    dropped: tuple[Dropped, ...] = ()
    text: str | None = None

    @property
    def total(self) -> float:
        """The certificate: an upper bound on the difference of scores."""
        return self.delta_hat + self.codec_error + self.embedding_error + self.rounding


@dataclass(frozen=True, slots=True)
class Found:
    """The hits, best first; equal scores in order of arrival.

    The index names `windows`, retained and dropped; those of which nothing is kept any more are `missing`. Of the tool
    output that is still in the prompt, `uncovered_characters` are in no window: what came after the cap of windows.
    `encoder` is the name of the encoder, `eps` the codec's bound on every coordinate.
    """

    hits: tuple[Hit, ...]
    windows: int
    missing: int
    prefix_digest: str
    encoder: str
    eps: float
    uncovered_characters: int
