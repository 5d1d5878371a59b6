"""What one conversation prefix holds."""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from lam_vllm.line_index import LineIndex
from lam_vllm.lines import Unit
from lam_vllm.near_duplicates import RetainedWindows
from lam_vllm.ops.reference import l2_distances
from lam_vllm.types import Decision, Embedding, Observation, Reason


class Section(NamedTuple):
    """The lines of one emitted text: where they begin in the arrays, and what the prompt calls them."""

    start: int
    result: int
    first_line: int
    unit: Unit
    position_tokens: int


class Place(NamedTuple):
    """Where a retained window stands whole: `lines` printed lines of `result` from line `first`, array place `start`.

    Fixed token windows (profile `paper`) are not lines: `first` is then the window's ordinal in its result.
    """

    result: int
    first: int
    lines: int = 0
    start: int = -1


class SeenWindow(NamedTuple):
    """A window that was looked at: characters `start:end` of one text of tool result `result`, as it arrived.

    `row` is its own among the retained ones where `distance` is None. Otherwise it was dropped: `row` represents it,
    and their embeddings, as this process made them, lie no further apart than `distance` (l2).
    """

    message: int
    part: int | None
    result: int
    start: int
    end: int
    row: int
    distance: float | None = None


class Emitted(NamedTuple):
    """What became of one message: changed texts by part, the decisions, and why nothing (more) was removed."""

    texts: tuple[tuple[int | None, str], ...] = ()
    decisions: tuple[Decision, ...] = ()
    reasons: tuple[Reason, ...] = ()
    boundary_pairs: int = 0
    distances: tuple[float, ...] = ()
    observation: bool = False
    seen: tuple[SeenWindow, ...] = ()


class Size(NamedTuple):
    """Lengths of everything that grows; a memory is cut back to one by `rollback`."""

    lines: int
    arrived: int
    sections: int
    whole: int
    results: int
    repeats: int
    windows: int
    embedded: int
    position_tokens: int


@dataclass(slots=True)
class Mark:
    """A message of the prefix: its rolling digest, what was emitted, and the memory's size after it."""

    digest: str
    emitted: Emitted
    size: Size


@dataclass
class ConversationMemory:
    """Lines emitted whole (as interned keys and numbers, in order), retained windows, and a mark per message."""

    windows: RetainedWindows
    lines: LineIndex = field(default_factory=LineIndex)
    sections: list[Section] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)  # of the sections, to find one by position
    whole: dict[int, int] = field(default_factory=dict)  # section start -> lines, where a result was emitted whole
    places: list[Place | None] = field(default_factory=list)  # one per retained window; None: not whole in the prompt
    marks: list[Mark] = field(default_factory=list)
    results: int = 0
    repeats: int = 0
    embedded: int = 0
    position_tokens: int = 0
    text_bytes: int = 0

    def open_section(self, result: int, first_line: int, unit: Unit) -> Section:
        """Begin the lines of a text; what is appended from here belongs to it."""
        section = Section(len(self.lines), result, first_line, unit, self.position_tokens)
        self.sections.append(section)
        self.starts.append(section.start)
        return section

    def section_at(self, position: int) -> Section:
        """The section that holds an array position."""
        return self.sections[bisect_right(self.starts, position) - 1]

    def reach(self, tokens: int, limit: int) -> int:
        """The earliest array position from which it is no further than `limit` to the end of a message of `tokens`."""
        first = bisect_left(self.sections, self.position_tokens + tokens - limit, key=lambda each: each.position_tokens)
        if first < len(self.sections):
            return self.sections[first].start
        return len(self.lines) if tokens <= limit else sys.maxsize

    def retain(
        self, observation: Observation, start: int, end: int, embedding: Embedding, place: Place | None
    ) -> SeenWindow:
        """The window `start:end` of the text, which is retained from here on."""
        row = self.windows.add(observation.text[start:end], embedding, place is not None)
        self.places.append(place)
        return SeenWindow(*observation[:3], start, end, row)

    def drop(self, observation: Observation, start: int, end: int, embedding: Embedding, row: int) -> SeenWindow:
        """The window `start:end` of the text, for which the retained window `row` stands. Nothing is changed."""
        (measured,) = l2_distances(self.windows.embedding(row)[None], embedding)
        return SeenWindow(*observation[:3], start, end, row, _rounded_up(float(measured)))

    def size(self) -> Size:
        """The present lengths."""
        return Size(
            len(self.lines),
            self.lines.arrived,
            len(self.sections),
            len(self.whole),
            self.results,
            self.repeats,
            len(self.windows),
            self.embedded,
            self.position_tokens,
        )

    def rollback(self, size: Size) -> None:
        """Forget everything that came after `size` was taken (marks aside)."""
        self.lines.rollback(size.lines, size.arrived)
        del self.sections[size.sections :], self.starts[size.sections :], self.places[size.windows :]
        while len(self.whole) > size.whole:
            self.whole.popitem()
        if len(self.windows) > size.windows:
            self.windows = self.windows.fork(size.windows)
        self.results, self.repeats, self.embedded = size.results, size.repeats, size.embedded
        self.position_tokens = size.position_tokens

    def fork(self, messages: int) -> ConversationMemory:
        """A memory of the first `messages` messages, at least one; texts are shared, indexes copied."""
        size = self.marks[messages - 1].size
        copy = ConversationMemory(
            self.windows.fork(size.windows),
            self.lines.fork(size.lines, size.arrived),
            list(self.sections),
            list(self.starts),
            dict(self.whole),
            list(self.places),
            self.marks[:messages],
            text_bytes=self.text_bytes,
        )
        copy.rollback(size)
        return copy

    @property
    def nbytes(self) -> int:
        """Estimated memory: text of distinct lines, array and index entries, embeddings, marks and windows in them."""
        entries = 200 * len(self.lines) + 500 * len(self.marks) + 300 * self.embedded
        return self.text_bytes + entries + self.windows.nbytes + 1000


def _rounded_up(distance: float) -> float:
    """A float32 above the distance, by more than float64 can be wrong about it; 0 only for equal rows."""
    return float(np.nextafter(np.float32(distance), np.float32(np.inf))) if distance else 0.0
