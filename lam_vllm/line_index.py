"""The lines a conversation has shown whole, in order, and where each of them stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

from lam_vllm.lines import Key

_Key = TypeVar("_Key")

NOWHERE = -1
HOLE = -1
"""Stands where a stub was printed, and between texts: no run of equal lines crosses it."""
POSITIONS_EACH_END = 8
"""Of the places of two lines the first and the latest few are tried: a bound on work that content alone decides."""


@dataclass(slots=True)
class LineIndex:
    """An append-only array of printed lines, each as the number of its key and its leading number.

    A key's number is the ordinal, over all lines that ever arrived, of the line that first had it. A line whose key is
    new is always printed, so `first[n]` is where key n stands first (NOWHERE for lines that repeated an earlier key).
    `later` has the other places of a line, `pair` those of a line before another one, by the latter's later places:
    most lines appear once, and cost a few list entries.
    """

    table: dict[Key, int] = field(default_factory=dict)
    ids: list[int] = field(default_factory=lambda: [HOLE])
    numbers: list[int] = field(default_factory=lambda: [0])
    first: list[int] = field(default_factory=list)
    later: dict[int, list[int]] = field(default_factory=dict)
    pair: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def intern(self, keys: Sequence[Key]) -> list[int]:
        """The numbers of the keys of lines that arrive together: a key is new where it is `arrived` + its place.

        Every one of these lines is then kept or skipped, in order, before others are interned.
        """
        return list(map(self.table.setdefault, keys, count(self.arrived)))

    @property
    def arrived(self) -> int:
        """How many lines arrived so far."""
        return len(self.first)

    def keep(self, line: int, number: int) -> None:
        """Append a printed line; it can be referred to from here on."""
        position, before = len(self.ids), self.ids[-1]
        self.ids.append(line)
        self.numbers.append(number)
        if line == len(self.first):
            self.first.append(position)
            return
        self.first.append(NOWHERE)
        self.later.setdefault(line, []).append(position)
        if before != HOLE:
            self.pair.setdefault((before, line), []).append(position - 1)

    def keep_new(self, ids: Sequence[int], numbers: Sequence[int]) -> None:
        """`keep` for lines whose keys are all new."""
        start = len(self.ids)
        self.ids += ids
        self.numbers += numbers
        self.first += range(start, len(self.ids))

    def skip(self, lines: int) -> None:
        """Pass over lines that arrived and are not printed."""
        self.first += [NOWHERE] * lines

    def hole(self) -> None:
        """Append the place of a stub, or the end of a text."""
        self.ids.append(HOLE)
        self.numbers.append(0)

    def follows(self, line: int, following: int) -> bool:
        """Whether some text shows these two lines one after the other."""
        first = self.first
        if following >= len(first):
            return False
        return self.ids[first[following] - 1] == line or (line, following) in self.pair

    def positions(self, line: int, following: int | None) -> Sequence[int]:
        """Where `line` stands before `following`, the first and latest few places; if nowhere, its latest place."""
        if following is not None and self.follows(line, following):
            place = self.first[following] - 1
            both = self.pair.get((line, following), [])
            if len(both) > 2 * POSITIONS_EACH_END:
                both = both[:POSITIONS_EACH_END] + both[-POSITIONS_EACH_END:]
            return [place, *both] if self.ids[place] == line else both
        return self.places_of(line)[-1:]

    def places_of(self, line: int) -> list[int]:
        """Every place of a line, ascending."""
        if line >= len(self.first):
            return []
        return [self.first[line], *self.later.get(line, ())]

    def rollback(self, lines: int, arrived: int) -> None:
        """Forget all but the first `lines` entries of the array and the first `arrived` lines."""
        while len(self.ids) > lines:
            line, position = self.ids.pop(), len(self.ids)
            if line == HOLE or self.first[line] == position:
                continue
            _pop(self.later, line)
            if self.ids[-1] != HOLE:
                _pop(self.pair, (self.ids[-1], line))
        del self.numbers[lines:], self.first[arrived:]
        while self.table and next(reversed(self.table.values())) >= arrived:
            self.table.popitem()

    def fork(self, lines: int, arrived: int) -> LineIndex:
        """An index of the first `lines` entries and `arrived` lines; keys are shared, places copied."""
        copy = LineIndex(
            dict(self.table),
            list(self.ids),
            list(self.numbers),
            list(self.first),
            {line: list(places) for line, places in self.later.items()},
            {both: list(places) for both, places in self.pair.items()},
        )
        copy.rollback(lines, arrived)
        return copy


def _pop(index: dict[_Key, list[int]], key: _Key) -> None:
    places = index[key]
    places.pop()
    if not places:
        del index[key]
