"""The stretch of an earlier text that shares most lines with a window: a candidate that needs no encoder."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from lam_vllm.line_index import HOLE, POSITIONS_EACH_END
from lam_vllm.memory import ConversationMemory, Place

LEAST_LINE_TOKENS = 2
"""Blank lines and lone brackets stand everywhere and say nothing."""
SLACK_LINES = 40
"""How far lines may have moved against one another within a stretch."""


class _Hit(NamedTuple):
    line: int
    position: int
    tokens: int


def find_stretch(memory: ConversationMemory, before: int, lines: Sequence[int], tokens: Sequence[int]) -> Place | None:
    """Where the most tokens of these lines (keys, and what each costs) stand together, or None if nowhere.

    Only whole lines printed at array places below `before`, in one text, with no stub between them; not in a text that
    counts parts, since the stub counts lines.
    """
    by_section: defaultdict[int, list[_Hit]] = defaultdict(list)
    for line, (key, cost) in enumerate(zip(lines, tokens, strict=True)):
        places = _few(memory.lines.places_of(key)) if cost >= LEAST_LINE_TOKENS else []
        for position in places:
            section = memory.section_at(position)
            if 0 <= position < before and section.unit == "line":
                by_section[section.start].append(_Hit(line, position, cost))
    if not by_section:
        return None
    start = max(by_section, key=lambda section: (_shared_tokens(by_section[section]), -section))
    return _stretch(memory, by_section[start])


def _few(places: list[int]) -> list[int]:
    if len(places) <= 2 * POSITIONS_EACH_END:
        return places
    return places[:POSITIONS_EACH_END] + places[-POSITIONS_EACH_END:]


def _shared_tokens(hits: list[_Hit]) -> int:
    return sum({hit.line: hit.tokens for hit in hits}.values())


def _stretch(memory: ConversationMemory, hits: list[_Hit]) -> Place:
    """Around the diagonal that holds most tokens, as far as hits near it go and no stub stands between."""
    diagonals: Counter[int] = Counter()
    for hit in hits:
        diagonals[hit.position - hit.line] += hit.tokens
    chosen = max(diagonals, key=lambda diagonal: (diagonals[diagonal], -diagonal))
    near = sorted({hit.position for hit in hits if abs(hit.position - hit.line - chosen) <= SLACK_LINES})
    first = last = near.index(min(hit.position for hit in hits if hit.position - hit.line == chosen))
    while first > 0 and _unbroken(memory, near[first - 1], near[first]):
        first -= 1
    while last + 1 < len(near) and _unbroken(memory, near[last], near[last + 1]):
        last += 1
    section, start = memory.section_at(near[first]), near[first]
    return Place(section.result, section.first_line + start - section.start, near[last] - start + 1, start)


def _unbroken(memory: ConversationMemory, start: int, stop: int) -> bool:
    return HOLE not in memory.lines.ids[start:stop]
