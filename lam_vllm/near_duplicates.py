"""The near-duplicate rule: greedy, against the retained windows of this conversation only."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from lam_vllm.bound import delta_of
from lam_vllm.encoders.base import Embeddings
from lam_vllm.search import ExhaustiveSearch, Search, verify, verify_near
from lam_vllm.types import Candidate, Embedding, Match

_FIRST_CAPACITY = 16
_Scalar = TypeVar("_Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Found:
    """What became of one arriving window: its match, its embedding, and how many pairs were close to the bound."""

    match: Match | None
    embedding: Embedding
    boundary_pairs: int


class RetainedWindows:
    """Windows of one conversation by ascending index: embedding, text, and whether it may represent others.

    Append-only. Costs 4 D bytes a window, up to twice that while growing, plus each distinct text. The canonical
    embedding of a window is kept beside its own once a close decision needed it, and what the search derives of each.
    """

    def __init__(self, dimension: int, search: Search | None = None) -> None:
        """Nothing is retained yet. It is looked through by a fork of `search`; None looks at every window."""
        self._rows = np.empty((_FIRST_CAPACITY, dimension), dtype=np.float32)
        self._eligible = np.zeros(_FIRST_CAPACITY, dtype=np.bool_)
        self._count = 0
        self._texts: list[str] = []
        self._canonical: dict[int, Embedding] = {}
        self._first: dict[str, int] = {}
        self._first_eligible: dict[str, int] = {}
        self._text_bytes = 0
        self._search: Search = ExhaustiveSearch() if search is None else search.fork(0)

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes held: the buffers at their capacity, what the search keeps, and the texts."""
        canonical = len(self._canonical) * self._rows.itemsize * self._rows.shape[1]
        return self._rows.nbytes + self._eligible.nbytes + self._text_bytes + canonical + self._search.nbytes

    @property
    def rows(self) -> Embedding:
        """(N, D) read-only view of the embeddings; later additions do not change it."""
        return _read_only(self._rows[: self._count])

    @property
    def eligible(self) -> NDArray[np.bool_]:
        """(N,) read-only view: whether each window may represent others."""
        return _read_only(self._eligible[: self._count])

    @property
    def canonical_only(self) -> bool:
        """Whether only canonical embeddings may be added and looked for, since the search might miss others."""
        return not self._search.complete

    def candidates(self, embedding: Embedding, threshold_cos: float) -> list[Candidate]:
        """Eligible windows that may have a cosine of at least `threshold_cos` with the (D,) embedding, ascending."""
        return self._search.propose(self.rows, self.eligible, embedding, threshold_cos)

    def add(self, text: str, embedding: Embedding, eligible: bool) -> int:
        """Index of the window, which is appended; the embedding (D,) float32 is copied.

        Raises:
            ValueError: the embedding has another shape or dtype.
        """
        expected = self._rows.shape[1:]
        if embedding.shape != expected or embedding.dtype != np.float32:
            given = f"shape {embedding.shape} of {embedding.dtype}"
            raise ValueError(f"embedding: {given} is not allowed; allowed: shape {expected} of float32")
        if self._count == len(self._rows):
            self._grow()
        index = self._count
        self._rows[index], self._eligible[index] = embedding, eligible
        self._texts.append(text)
        self._count += 1
        self._remember(text, index, eligible)
        return index

    def embedding(self, index: int) -> Embedding:
        """(D,) read-only view of the embedding of the window with this index.

        Raises:
            IndexError: there is no such window.
        """
        if not 0 <= index < self._count:
            raise IndexError(f"index: {index} is not allowed; allowed: 0 to {self._count - 1}")
        return _read_only(self._rows[index])

    def canonical(self, index: int, embeddings: Embeddings) -> Embedding:
        """(D,) canonical embedding of the window with this index, from `embeddings` the first time it is needed."""
        if index not in self._canonical:
            self._canonical[index] = embeddings.canonical(self._texts[index])
        return self._canonical[index]

    def first(self, text: str, eligible_only: bool = False) -> int | None:
        """Lowest index of a window with exactly this text, or None."""
        return (self._first_eligible if eligible_only else self._first).get(text)

    def fork(self, count: int) -> RetainedWindows:
        """An independent copy that holds the first `count` windows.

        Raises:
            ValueError: there are fewer than `count`, or it is negative.
        """
        if not 0 <= count <= self._count:
            raise ValueError(f"count: {count} is not allowed; allowed: 0 to {self._count}")
        other = RetainedWindows(self._rows.shape[1])
        other._search = self._search.fork(count)
        capacity = max(_FIRST_CAPACITY, count)
        other._rows = np.empty((capacity, self._rows.shape[1]), dtype=np.float32)
        other._eligible = np.zeros(capacity, dtype=np.bool_)
        other._rows[:count], other._eligible[:count] = self._rows[:count], self._eligible[:count]
        other._count = count
        other._texts = self._texts[:count]
        other._canonical = {index: row for index, row in self._canonical.items() if index < count}
        other._first = {text: index for text, index in self._first.items() if index < count}
        other._first_eligible = {text: index for text, index in self._first_eligible.items() if index < count}
        other._text_bytes = sum(map(sys.getsizeof, other._first))
        return other

    def _grow(self) -> None:
        # New buffers, not resized ones: views that were handed out keep what they showed.
        self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        self._eligible = np.concatenate([self._eligible, np.zeros_like(self._eligible)])

    def _remember(self, text: str, index: int, eligible: bool) -> None:
        if text not in self._first:
            self._first[text] = index
            self._text_bytes += sys.getsizeof(text)
        if eligible:
            self._first_eligible.setdefault(text, index)


def find_match(
    text: str,
    embeddings: Embeddings,
    retained: RetainedWindows,
    threshold_cos: float,
) -> Found:
    """The eligible retained window that the arriving window `text` repeats within delta, if there is one.

    An eligible window of the same text matches at distance 0 and nothing is embedded. Otherwise the text is embedded
    (not even that when an ineligible window of the same text lends its embedding), and the representative is the
    lowest-indexed eligible window within delta by canonical embeddings, of those that the search proposes. No window of
    `retained` is changed. Raises what `embeddings` raises.
    """
    same = retained.first(text, eligible_only=True)
    if same is not None:
        return Found(Match(same, 0.0), retained.embedding(same), 0)
    lender = retained.first(text)
    embed = embeddings.canonical if retained.canonical_only else embeddings.embed
    embedding = embed(text) if lender is None else retained.embedding(lender)
    band = 0.0 if retained.canonical_only else embeddings.guard_band
    candidates = retained.candidates(embedding, threshold_cos - band)
    if not band:
        verdict = verify(candidates, retained.rows, embedding, delta_of(threshold_cos), embeddings.arrays)
        return Found(verdict.match, embedding, verdict.boundary_pairs)

    def canonical_distance(index: int) -> float:
        canonical = retained.canonical(index, embeddings)[None]
        (distance,) = embeddings.arrays.l2_distances(canonical, embeddings.canonical(text))
        return float(distance)

    verdict = verify_near(candidates, retained.rows, embedding, threshold_cos, band, canonical_distance)
    return Found(verdict.match, embedding, verdict.boundary_pairs)


def _read_only(view: NDArray[_Scalar]) -> NDArray[_Scalar]:
    view.flags.writeable = False
    return view
