"""Text as pieces (lines, or parts of long lines), and what makes two pieces equal up to a shifted line number.

A piece is a string. One that ends its line carries the newline, also the last line of a text, which has none there:
so a piece says by itself whether it ends its line.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Literal, TypeAlias

Unit: TypeAlias = Literal["line", "part"]
Key: TypeAlias = str | tuple[int, str, str] | tuple[str]
"""A line as it is; a numbered one: (width of a padded number or 0, separator, rest); a part of a line: (part,)."""

LONG_LINE_CHARACTERS = 500
"""Longer lines (JSON, minified code) may be cut in parts; lines that people write and read are shorter."""
NUMBER_STARTS = frozenset(" 123456789")
"""Only a piece that begins with one of these can carry a line number."""
_NUMBERED = re.compile(r"( *)([1-9][0-9]{0,8})([\t|→]|[:\-](?![0-9][0-9](?![0-9])))")
_PART_END = re.compile(r", |; |> |,(?=[\"{])|>(?=<)|\\n|[{}\]]|(?<!\x1b)\[")  # ESC [ begins an escape sequence


def number_key(line: str) -> tuple[Key, int]:
    """The line's key and its leading number (0: none).

    A padded number keeps the width of its column in the key, so that a shifted number can be right-aligned to the
    same width again; timestamps and dates (`12:30`, `2024-01`) are not line numbers.
    """
    found = _NUMBERED.match(line)
    if found is None:
        return line, 0
    padding, digits, separator = found.groups()
    width = len(padding) + len(digits) if padding else 0
    return (width, separator, line[found.end() :]), int(digits)


def renumbered(line: str, shift: int) -> str:
    """The line with its leading number moved by `shift`, right-aligned to the same column; unnumbered: as it is."""
    key, number = number_key(line)
    if shift == 0 or len(key) != 3 or isinstance(key, str):
        return line
    width, separator, rest = key
    return f"{str(number + shift).rjust(width)}{separator}{rest}"


def cut_text(text: str) -> tuple[list[str], Unit]:
    """The text as pieces, and what they are; `join_pieces` is the inverse.

    Lines are split on newline alone. Long ones are cut where they hold at least half of the text (JSON, minified code).
    """
    lines = [line + "\n" for line in text.split("\n")]
    if max(map(len, lines)) <= LONG_LINE_CHARACTERS + 1:
        return lines, "line"
    long = sum(size for size in map(len, lines) if size > LONG_LINE_CHARACTERS + 1)
    if 2 * long < len(text):
        return lines, "line"
    return [part for line in lines for part in (cut_parts(line) if is_long(line) else (line,))], "part"


def keys_of(pieces: list[str], unit: Unit) -> tuple[list[Key], list[int]]:
    """Key and leading number of every piece. Where long lines are cut, lines have no numbers, and parts equal parts."""
    keys: list[Key] = list(pieces)
    numbers = [0] * len(pieces)
    if unit == "part":
        return _part_keys(pieces), numbers
    for place, line in enumerate(pieces):
        if line[0] in NUMBER_STARTS and line.lstrip(" ")[0] in NUMBER_STARTS:  # mostly indentation: spare the match
            keys[place], numbers[place] = number_key(line)
    return keys, numbers


def is_long(line: str) -> bool:
    """Whether a line with its newline is longer than lines that stay whole."""
    return len(line) > LONG_LINE_CHARACTERS + 1


def cut_parts(line: str) -> list[str]:
    """The line cut where JSON, XML and code can be (`_PART_END`): each cut depends on two characters alone."""
    # One match at a time: a single split of a megabyte would keep every other thread waiting.
    last = len(line) - line.endswith("\n")  # a line end is no part of its own
    ends = [found.end() for found in _PART_END.finditer(line) if found.end() < last]
    return [line[start:end] for start, end in pairwise([0, *ends, len(line)])]


def join_pieces(pieces: list[str]) -> str:
    """The text of pieces that end a text: without the last one's newline."""
    return "".join(pieces).removesuffix("\n")


def _part_keys(pieces: list[str]) -> list[Key]:
    keys: list[Key] = []
    inside = False
    for piece in pieces:
        ends = piece.endswith("\n")
        whole = ends and not inside and not is_long(piece)
        keys.append(piece if whole else (piece,))
        inside = not ends
    return keys
