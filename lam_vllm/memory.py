"""What one conversation prefix holds, and the memo of prefixes."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias, TypeVar

from lam_vllm.lines import Key, Unit
from lam_vllm.near_duplicates import RetainedWindows
from lam_vllm.types import Decision, Reason

_K = TypeVar("_K")
HOLE = -1
"""Stands in the line array where a stub was printed, and after every text: no run of equal lines crosses it."""
POSITIONS_EACH_END = 8
"""Of a line's earlier positions the first and the latest few are tried: a bound on work that content alone decides."""


Places: TypeAlias = int | list[int]
"""Array positions of a line, ascending: a bare number as long as there is one, since most lines never repeat."""


class Section(NamedTuple):
    """The lines of one emitted text: where they begin in the arrays, and what the prompt calls them."""

    start: int
    result: int
    first_line: int
    unit: Unit
    position_tokens: int


class Place(NamedTuple):
    """Where a retained window stands whole: `lines` printed lines of `result` from line `first`, array position `start`.

    Fixed token windows (profile `paper`) are not lines: `first` is then the window's ordinal in its result.
    """

    result: int
    first: int
    lines: int = 0
    start: int = -1


class Emitted(NamedTuple):
    """What became of one message: changed texts by part, the decisions, and why nothing (more) was removed."""

    texts: tuple[tuple[int | None, str], ...] = ()
    decisions: tuple[Decision, ...] = ()
    reasons: tuple[Reason, ...] = ()
    boundary_pairs: int = 0
    distances: tuple[float, ...] = ()
    observation: bool = False


class Size(NamedTuple):
    """Lengths of everything that grows; a memory is cut back to one by `rollback`."""

    lines: int
    sections: int
    whole: int
    results: int
    stubs: int
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
    table: dict[Key, int] = field(default_factory=dict)
    ids: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    one: dict[int, Places] = field(default_factory=dict)
    pair: dict[tuple[int, int], Places] = field(default_factory=dict)
    sections: list[Section] = field(default_factory=list)
    whole: dict[int, int] = field(default_factory=dict)  # section start -> lines, where a result was emitted whole
    places: list[Place | None] = field(default_factory=list)  # one per retained window; None: not whole in the prompt
    marks: list[Mark] = field(default_factory=list)
    results: int = 0
    stubs: int = 0
    embedded: int = 0
    position_tokens: int = 0
    text_bytes: int = 0

    def intern(self, key: Key) -> int:
        """The number of a key, given out in order of first appearance."""
        return self.table.setdefault(key, len(self.table))

    def open_section(self, result: int, first_line: int, unit: Unit) -> Section:
        """Begin the lines of a text; what is appended from here belongs to it."""
        section = Section(len(self.ids), result, first_line, unit, self.position_tokens)
        self.sections.append(section)
        return section

    def extend(self, ids: Sequence[int], numbers: Sequence[int]) -> None:
        """Append kept lines; they can be referred to from here on."""
        position = len(self.ids)
        previous = self.ids[-1] if position else HOLE
        self.ids += ids
        self.numbers += numbers
        for line in ids:
            _push(self.one, line, position)
            if previous >= 0:
                _push(self.pair, (previous, line), position - 1)
            previous = line
            position += 1

    def extend_fresh(self, ids: Sequence[int], numbers: Sequence[int]) -> None:
        """`extend` for lines that no text showed before: their index entries are new, and made in bulk."""
        start = len(self.ids)
        before = self.ids[-1:] if start and self.ids[-1] != HOLE else []
        self.ids += ids
        self.numbers += numbers
        self.one.update(zip(ids, range(start, len(self.ids)), strict=True))
        following = zip([*before, *ids], ids if before else ids[1:], strict=False)
        self.pair.update(zip(following, range(start - len(before), len(self.ids)), strict=False))

    def hole(self) -> None:
        """Append the place of a stub, or the end of a text."""
        self.ids.append(HOLE)
        self.numbers.append(0)

    def positions(self, line: int, following: int | None) -> Sequence[int]:
        """Where this line was emitted with `following` after it (the first and latest few); else its latest place."""
        both = self.pair.get((line, following)) if following is not None else None
        if both is not None:
            return (both,) if isinstance(both, int) else both if len(both) <= 2 * POSITIONS_EACH_END else _ends(both)
        return self.places_of(line)[-1:]

    def places_of(self, line: int) -> Sequence[int]:
        """Every place of a line, ascending."""
        places = self.one.get(line)
        return () if places is None else (places,) if isinstance(places, int) else places

    def section_at(self, position: int) -> Section:
        """The section that holds an array position."""
        return self.sections[bisect_right(self.sections, position, key=lambda section: section.start) - 1]

    def size(self) -> Size:
        """The present lengths."""
        return Size(
            len(self.ids),
            len(self.sections),
            len(self.whole),
            self.results,
            self.stubs,
            len(self.windows),
            self.embedded,
            self.position_tokens,
        )

    def rollback(self, size: Size) -> None:
        """Forget everything that came after `size` was taken (marks aside)."""
        for position in range(len(self.ids) - 1, size.lines - 1, -1):
            self._forget(position)
        del self.ids[size.lines :], self.numbers[size.lines :], self.sections[size.sections :]
        del self.places[size.windows :]
        while len(self.whole) > size.whole:
            self.whole.popitem()
        if len(self.windows) > size.windows:
            self.windows = self.windows.fork(size.windows)
        self.results, self.stubs, self.embedded = size.results, size.stubs, size.embedded
        self.position_tokens = size.position_tokens

    def fork(self, messages: int) -> ConversationMemory:
        """A memory of the first `messages` messages; texts are shared, indexes copied."""
        copy = ConversationMemory(
            self.windows,
            dict(self.table),
            list(self.ids),
            list(self.numbers),
            _copied(self.one),
            _copied(self.pair),
            list(self.sections),
            dict(self.whole),
            list(self.places),
            list(self.marks[:messages]),
            text_bytes=self.text_bytes,
        )
        size = copy.marks[-1].size if messages else Size(0, 0, 0, 0, 0, 0, 0, 0)
        copy.windows = self.windows.fork(size.windows)
        copy.rollback(size)
        return copy

    @property
    def nbytes(self) -> int:
        """Estimated memory: text of distinct lines, array and index entries, embeddings, marks."""
        return self.text_bytes + 300 * len(self.ids) + 500 * len(self.marks) + self.windows.nbytes + 1000

    def _forget(self, position: int) -> None:
        line = self.ids[position]
        if line == HOLE:
            return
        _pop(self.one, line)
        if position and self.ids[position - 1] != HOLE:
            _pop(self.pair, (self.ids[position - 1], line))


def _ends(places: list[int]) -> list[int]:
    return places[:POSITIONS_EACH_END] + places[-POSITIONS_EACH_END:]


def _push(index: dict[_K, Places], key: _K, position: int) -> None:
    places = index.get(key)
    if places is None:
        index[key] = position
    elif isinstance(places, int):
        index[key] = [places, position]
    else:
        places.append(position)


def _pop(index: dict[_K, Places], key: _K) -> None:
    places = index[key]
    if isinstance(places, int) or len(places) == 1:
        del index[key]
    else:
        places.pop()


def _copied(index: dict[_K, Places]) -> dict[_K, Places]:
    return {key: places if isinstance(places, int) else list(places) for key, places in index.items()}


class PrefixMemo:
    """The longest known prefix of a conversation, by its rolling digests. LRU by bytes: a loss costs time only."""

    def __init__(self, max_bytes: int, dimension: int) -> None:
        self.max_bytes = max_bytes
        self.dimension = dimension
        self.nbytes = 0
        self._sizes: OrderedDict[int, tuple[ConversationMemory, int]] = OrderedDict()
        self._by_digest: dict[str, ConversationMemory] = {}

    def take(self, digests: Sequence[str]) -> tuple[ConversationMemory, int]:
        """A memory, and how many leading messages it knows. To be given back with `put` after it was extended.

        A memory that reaches beyond what is asked is forked if it must grow, and kept as it is.
        """
        for known in range(len(digests), 0, -1):
            memory = self._by_digest.get(digests[known - 1])
            if memory is None:
                continue
            if len(memory.marks) == known:
                self._remove(memory)
                return memory, known
            self._sizes.move_to_end(id(memory))
            return (memory if known == len(digests) else memory.fork(known)), known
        return self.empty(), 0

    def empty(self) -> ConversationMemory:
        """A memory that knows nothing."""
        return ConversationMemory(RetainedWindows(self.dimension))

    def put(self, memory: ConversationMemory) -> None:
        """Keep a memory as the most recent one; the least recent go while the cap is passed."""
        if id(memory) in self._sizes:
            return
        self._sizes[id(memory)] = (memory, memory.nbytes)
        self.nbytes += memory.nbytes
        for mark in memory.marks:
            self._by_digest[mark.digest] = memory
        while self.nbytes > self.max_bytes and self._sizes:
            self._remove(next(iter(self._sizes.values()))[0])

    def check_integrity(self) -> None:
        """Raise AssertionError unless bytes and entries add up."""
        assert self.nbytes == sum(size for _, size in self._sizes.values())
        assert all(id(memory) in self._sizes for memory in self._by_digest.values())

    def _remove(self, memory: ConversationMemory) -> None:
        _, size = self._sizes.pop(id(memory))
        self.nbytes -= size
        for mark in memory.marks:
            if self._by_digest.get(mark.digest) is memory:
                del self._by_digest[mark.digest]
