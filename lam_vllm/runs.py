"""Runs of lines that stand earlier in the prompt: one greedy pass over an observation (profile `exact`).

The pass reads a line, looks where the same two lines were emitted before, follows each place as far as the lines
agree, and replaces the longest run if its stub is cheaper. What is kept can be referred to at once.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Literal, NamedTuple

from lam_vllm.cuts import Cut
from lam_vllm.line_index import HOLE
from lam_vllm.lines import keys_of
from lam_vllm.memory import ConversationMemory, Section
from lam_vllm.prices import MARGIN_TOKENS, Prices
from lam_vllm.stubs import Stub, excerpt_of, format_stub
from lam_vllm.types import Reason

LONGEST_PERIOD = 4
COMPARISONS_EACH_LINE = 32
COMPARISONS_AT_LEAST = 1000
"""Line comparisons one observation may cost; when they are spent its rest is kept."""


class _Found(NamedTuple):
    length: int
    target: int
    shift: int
    period: int = 0  # above 0: the last `period` lines, repeated


class RunPlanner:
    """Plans one observation from left to right, appending what is kept to the memory as it goes."""

    def __init__(
        self,
        memory: ConversationMemory,
        section: Section,
        pieces: list[str],
        prices: Prices,
        min_tokens: int,
        reach: int = 0,
        printed: list[str] | None = None,
    ) -> None:
        self.memory = memory
        self.section = section
        self.pieces = pieces
        self.printed = pieces if printed is None else printed  # what each piece costs, if it stays, is told by these
        self.unit = section.unit
        self.refused: set[Reason] = set()
        self._prices = prices
        self._min_tokens = min_tokens
        self._reach = reach  # earliest array position that a reference may name
        self._budget = COMPARISONS_EACH_LINE * len(pieces) + COMPARISONS_AT_LEAST
        self._lag = 0  # how far behind the array's end the last reference would go on; 0: nowhere
        self._target: Section | None = None
        self._named = 0  # the result last named by a stub of this observation
        self._shift = 0
        keys, self._numbers = keys_of(pieces, self.unit)
        arrived = memory.lines.arrived
        self._ids = memory.lines.intern(keys)
        # Places of keys that are not new: no other piece can repeat anything.
        self._repeats = [place for place, line in enumerate(self._ids) if line != arrived + place]

    def plan(self, start: int, stop: int) -> list[Cut]:
        """Cuts in pieces `start:stop`; kept pieces and a hole per cut are in the memory afterwards."""
        cuts: list[Cut] = []
        ids, numbers, index = self._ids, self._numbers, self.memory.lines
        waiting = start  # first kept piece that is not in the memory yet; those up to the next repeat are all new
        for place in self._repeats[bisect_left(self._repeats, start) :]:
            if place >= stop:
                break
            if place < waiting:  # taken by the cut before
                continue
            if place > waiting:
                index.keep_new(ids[waiting:place], numbers[waiting:place])
            cut = None if self._budget <= 0 or self._hopeless(place, stop) else self._cut(place, stop)
            if cut is None:
                index.keep(ids[place], numbers[place])
                waiting = place + 1
            else:
                self.put(cut)
                cuts.append(cut)
                waiting = cut.stop
        if stop > waiting:
            index.keep_new(ids[waiting:stop], numbers[waiting:stop])
        return cuts

    def keep(self, start: int, stop: int) -> None:
        """Append pieces `start:stop` to the memory as printed."""
        for place in range(start, stop):
            self.memory.lines.keep(self._ids[place], self._numbers[place])

    def put(self, cut: Cut) -> None:
        """Append a cut's stub, and what it keeps, to the memory as printed."""
        self.memory.lines.hole()
        self.memory.repeats += cut.stub.kind != "like"  # whose words need no note
        after = cut.start
        for place in cut.kept:
            self.memory.lines.skip(place - after)
            self.keep(place, place + 1)
            after = place + 1
        self.memory.lines.skip(cut.stop - after)

    def key(self, place: int) -> tuple[int, int]:
        """Interned key and leading number of a piece."""
        return self._ids[place], self._numbers[place]

    def leave(self) -> None:
        """Forget what the last references named: a stub of another kind was printed in between."""
        self._lag, self._target, self._shift, self._named = 0, None, 0, 0

    def _cut(self, place: int, stop: int) -> Cut | None:
        found = self._longest(place, stop)
        if self._ids[place] in self.memory.lines.ids[-LONGEST_PERIOD:]:
            found = self._repetition(place, stop, found.length if found else 0) or found
        if found is None:
            return None
        pieces = self.printed[place : place + found.length]
        if len(pieces) < self._min_tokens and self._too_small(pieces):
            self.refused.add("below_min_tokens")
            return None
        cut = self._worded(place, found)
        limit = max(self._prices.stub(cut.text) + MARGIN_TOKENS, self._min_tokens - 1)
        removed = self._prices.run(pieces) if self._prices.exceed(pieces, limit) else 0
        if removed <= limit:
            self.refused.add("not_shorter")
            return None
        self._follow(cut, found)
        if self.printed is not self.pieces:
            removed = self._prices.run(self.pieces[place : place + found.length])
        return cut._replace(removed_tokens=removed)

    def _hopeless(self, place: int, stop: int) -> bool:
        """Sieve: no run from here can have `min_tokens`, since no text shows enough of these lines in this order.

        A text has no more tokens than bytes, so most lines need no counting. What repeats the last lines printed here
        may be shown by no text yet.
        """
        pieces, ids, follows = self.printed, self._ids, self.memory.lines.follows
        first = counted = place
        size = tokens = 0
        for _ in range(self._min_tokens):
            size += len(pieces[place]) if pieces[place].isascii() else self._min_tokens
            if size >= self._min_tokens:
                tokens += sum(map(self._prices.piece, pieces[counted : place + 1]))
                counted = place + 1
                if tokens >= self._min_tokens:
                    return False
            if place + 1 >= stop or not follows(ids[place], ids[place + 1]):
                several = place > first or (place + 1 < stop and ids[place] == ids[place + 1])
                if several and ids[first] in self.memory.lines.ids[-LONGEST_PERIOD:]:
                    return False
                self.refused.add("below_min_tokens")
                return True
            place += 1
        return False

    def _too_small(self, pieces: list[str]) -> bool:
        """Whether a run has fewer than `min_tokens`. A text has no more tokens than bytes, so most need no counting."""
        text = "".join(pieces)
        if len(text) < self._min_tokens and len(text.encode(errors="surrogatepass")) < self._min_tokens:
            return True
        return not self._prices.exceed(pieces, self._min_tokens - 1)

    def _longest(self, place: int, stop: int) -> _Found | None:
        memory, ids = self.memory, self._ids
        printed, line = memory.lines.ids, ids[place]
        candidates = memory.lines.positions(line, ids[place + 1] if place + 1 < stop else None)
        goes_on = len(printed) - self._lag
        if self._lag and printed[goes_on] == line:
            candidates = (goes_on, *candidates)
        length, at, by = 0, 0, 0
        for target in candidates:
            if target < self._reach:
                self.refused.add("too_far")
                continue
            if length:  # can it be longer? only if it also agrees one line further
                further = target + length
                self._budget -= 1
                if place + length >= stop or further >= len(printed):
                    continue
                if printed[further] != ids[place + length]:
                    continue
            extent, shift = self._extent(place, stop, target)
            if extent > length:
                length, at, by = extent, target, shift
        return _Found(length, at, by) if length else None

    def _extent(self, place: int, stop: int, target: int) -> tuple[int, int]:
        """How many lines agree from here on, and by which constant their numbers differ."""
        ids, numbers = self._ids, self._numbers
        printed, printed_numbers = self.memory.lines.ids, self.memory.lines.numbers
        limit = min(stop - place, len(printed) - target, self._budget + 1)
        shift: int | None = None
        length = 0
        while length < limit and printed[target + length] == ids[place + length]:
            number = numbers[place + length]
            if number:
                difference = number - printed_numbers[target + length]
                if shift is None:
                    shift = difference
                elif shift != difference:
                    break
            length += 1
        self._budget -= length + 1
        return length, shift or 0

    def _repetition(self, place: int, stop: int, longest: int) -> _Found | None:
        """The last few lines printed here, over and over, where that reaches further than `longest`."""
        printed, line = self.memory.lines.ids, self._ids[place]
        end, best = len(printed), None
        for period in range(1, min(LONGEST_PERIOD, end - self.section.start) + 1):
            if printed[end - period] == HOLE:
                break
            if printed[end - period] != line:
                continue
            length, shift = self._periodic(place, stop, period)
            if length > longest:
                best, longest = _Found(length, end - period, shift, period), length
        return best

    def _periodic(self, place: int, stop: int, period: int) -> tuple[int, int]:
        ids, numbers = self._ids, self._numbers
        base = len(self.memory.lines.ids) - period
        lines, line_numbers = self.memory.lines.ids[base:], self.memory.lines.numbers[base:]
        shift: int | None = None
        length = 0
        while place + length < stop and ids[place + length] == lines[length % period] and self._budget > 0:
            number = numbers[place + length]
            if number:
                turns = length // period + 1
                difference = number - line_numbers[length % period]
                if shift is None:
                    shift = difference
                if shift * turns != difference:
                    break
            length += 1
            self._budget -= 1
        return length - length % period, shift or 0

    def _worded(self, place: int, found: _Found) -> Cut:
        """The cut with the shortest wording that names its target."""
        section = self.memory.section_at(found.target)
        length = found.length
        first = section.first_line + found.target - section.start
        lines: tuple[int, int] | None = (first, first + (found.period or length) - 1)
        kind, shift, named = self._kind(place, found, section)
        if kind == "result":
            lines = None
        excerpt = excerpt_of(self.pieces[place]) if self.unit == "part" and kind != "result" else None
        stub = Stub(
            kind,
            section.result if named else 0,
            *((first, first + length - 1) if kind in ("range", "same_result", "above") else (0, 0)),
            many=found.period if kind == "repeat" else length if kind == "next" else 0,
            times=length // found.period if found.period else 0,
            shift=shift,
            unit=section.unit if kind != "result" else "line",
            excerpt=excerpt,
            note=self.memory.repeats == 0,
        )
        return Cut(
            place, place + length, stub, format_stub(stub), section.result, lines, section.unit, shift=found.shift
        )

    def _kind(
        self, place: int, found: _Found, section: Section
    ) -> tuple[Literal["result", "range", "same_result", "next", "above", "repeat"], int, bool]:
        if found.period:
            return "repeat", found.shift, False
        if place == 0 and found.length == len(self.pieces) == self.memory.whole.get(found.target):
            return "result", found.shift, True
        goes_on = found.target == len(self.memory.lines) - self._lag and section is self._target
        if goes_on and (found.shift or not self._shift):
            return "next", found.shift if found.shift != self._shift else 0, False
        if section is self.section:
            return "above", found.shift, False
        if section.result == self._named:
            return "same_result", found.shift, False
        return "range", found.shift, True

    def _follow(self, cut: Cut, found: _Found) -> None:
        if found.period:
            self._lag, self._target, self._shift = 0, None, 0
            return
        self._lag = len(self.memory.lines) + 1 - (found.target + found.length)  # its stub takes one place
        self._target = self.memory.section_at(found.target)
        self._shift = found.shift
        if cut.stub.kind == "range":
            self._named = cut.target_result
