"""Folding of contiguous repeated lines as public tools do it: the first stays, a later run becomes one reference."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

from lam_vllm.evaluation.baselines.texts import observations_of, with_observations
from lam_vllm.evaluation.corpus import Run
from lam_vllm.lines import Key, number_key
from lam_vllm.stubs import Stub, format_stub

MIN_LINES = 3
MIN_CHARACTERS = 40
REFERENCE_TOKENS = 15
REFERENCE = "[these lines stand in an earlier result, in just this order]"
"""A line of `REFERENCE_TOKENS` tokens of SmolLM2, its end included: it stands for a price and names nothing."""
SETTINGS = ("real references", "15 tokens", "own text too")


class Fold(NamedTuple):
    """Lines `start:stop` of a text repeat earlier lines; `reference` is the line that stands for them."""

    start: int
    stop: int
    reference: str


class SpanFolding:
    """A `Method`: at each line the longest run of at least three lines that stands earlier becomes one reference.

    Earlier is a text before this one: cross-turn folding compares a tool result with those before it, not with itself.
    Leading line numbers may differ by a constant. Only kept lines are referred to. The greedy choice looks at no price
    but its own: a run is folded where it costs more than its reference. `real references` are this project's own; with
    `15 tokens` every one costs just that, and names nothing; `own text too` also folds what a text repeats of itself.
    """

    name = "span_folding"
    seed = 0

    def __init__(self, count_tokens: Callable[[str], int], setting: str = SETTINGS[0]) -> None:
        self.setting = setting
        self.verbatim = setting != "15 tokens"
        self._count_tokens = count_tokens

    def shorten(self, run: Run) -> list[Any]:
        """The run's messages with a reference for each repeated run of lines."""
        observations = observations_of(run)
        kept = _KeptLines(own_text=self.setting == "own text too")
        texts = []
        for each in observations:
            lines = each.text.split("\n")
            texts.append("\n".join(_printed(lines, self._folds(lines, each.result, kept))))
        return with_observations(run, observations, texts)

    def _folds(self, lines: list[str], result: int, kept: _KeptLines) -> list[Fold]:
        """The folds of one text; what stays of it is kept."""
        keys = [number_key(line) for line in lines]
        folds: list[Fold] = []
        start = 0
        kept.open(result)
        while start < len(lines):
            match = kept.longest(keys, start)
            stop = start + match.lines
            run = "\n".join(lines[start:stop]) + "\n"
            reference = REFERENCE if self.setting == "15 tokens" else kept.reference(match)
            long_enough = match.lines >= MIN_LINES and len(run) - match.lines >= MIN_CHARACTERS
            if long_enough and self._count_tokens(run) > self._count_tokens(reference + "\n"):
                folds.append(Fold(start, stop, reference))
                kept.skip()
                start = stop
            else:
                kept.keep(keys[start])
                start += 1
        return folds


class _Match(NamedTuple):
    """`lines` lines that stand from `place` on, with numbers lower by `shift`."""

    lines: int = 0
    place: int = 0
    shift: int = 0


_Numbered = tuple[Key, int]


class _KeptLines:
    """Every line that was kept, in order, with a hole (None) for each reference and before each text."""

    def __init__(self, *, own_text: bool) -> None:
        self._own_text = own_text
        self._own_start = 0
        self._lines: list[_Numbered | None] = []
        self._printed: list[tuple[int, int]] = []
        self._places: defaultdict[tuple[Key, ...], list[int]] = defaultdict(list)
        self._result = self._line = 0

    def open(self, result: int) -> None:
        """Begin a text of tool result `result`; the lines of its texts are counted through."""
        self._line = self._line if result == self._result else 0
        self._result = result
        self._append(None)
        self._own_start = len(self._lines)

    def keep(self, line: _Numbered) -> None:
        """Append a line; with the lines before it, it can be referred to from here on."""
        self._line += 1
        self._append(line)
        last = [each[0] for each in self._lines[-MIN_LINES:] if each is not None]
        if len(last) == MIN_LINES:
            self._places[tuple(last)].append(len(self._lines) - MIN_LINES)

    def skip(self) -> None:
        """Append the place of a reference."""
        self._line += 1
        self._append(None)

    def longest(self, lines: list[_Numbered], start: int) -> _Match:
        """The longest kept run that the lines from `start` on repeat, the earliest of equally long ones."""
        opening = tuple(key for key, _ in lines[start : start + MIN_LINES])
        end = len(self._lines) if self._own_text else self._own_start
        places = self._places.get(opening, ())
        followed = [self._follow(lines, start, place) for place in places if place < end]
        return max(followed, key=lambda match: match.lines, default=_Match())

    def reference(self, match: _Match) -> str:
        """The line that stands for a match."""
        if not match.lines:
            return ""
        result, first = self._printed[match.place]
        last = first + match.lines - 1
        if result == self._result:
            return format_stub(Stub("above", first=first, last=last, shift=match.shift))
        return format_stub(Stub("range", result, first, last, shift=match.shift))

    def _append(self, line: _Numbered | None) -> None:
        self._lines.append(line)
        self._printed.append((self._result, self._line))

    def _follow(self, lines: list[_Numbered], start: int, place: int) -> _Match:
        """How far the kept lines from `place` on agree, up to the one shift that the first numbered line sets."""
        shift: int | None = None
        count = 0
        for (key, number), kept in zip(islice(lines, start, None), islice(self._lines, place, None), strict=False):
            if kept is None or kept[0] != key or (number and shift not in (None, number - kept[1])):
                break
            if number:
                shift = number - kept[1]
            count += 1
        return _Match(count, place, shift or 0)


def _printed(lines: list[str], folds: list[Fold]) -> list[str]:
    printed = []
    last = 0
    for fold in folds:
        printed += [*lines[last : fold.start], fold.reference]
        last = fold.stop
    return printed + lines[last:]
