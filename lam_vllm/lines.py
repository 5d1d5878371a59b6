"""Text as lines, and lines as keys: what makes two lines equal up to a constant shift of their leading number."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

Key: TypeAlias = str | tuple[int, str, str] | tuple[str]
"""A plain line; (width of a padded number or 0, separator, rest); or a part that does not end its line."""

LONG_LINE_CHARACTERS = 200
_NUMBERED = re.compile(r"( *)([1-9][0-9]{0,8})([\t|→]|[:\-](?![0-9][0-9](?![0-9])))", re.ASCII)
_PART_ENDS = re.compile(r"(?<=, )|(?<=; )|(?<=> )|(?<=\\n)")


@dataclass(frozen=True, slots=True)
class Piece:
    """A line, or a part of a long one: its text without line end, and whether it ends its line."""

    text: str
    ends_line: bool


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
    if shift == 0 or not isinstance(key, tuple) or len(key) != 3:
        return line
    width, separator, rest = key
    return f"{str(number + shift).rjust(width)}{separator}{rest}"


def unit_of(text: str) -> Literal["line", "part"]:
    """`part` where long lines hold at least half of the text (JSON, minified code); else `line`."""
    if len(text) <= LONG_LINE_CHARACTERS:
        return "line"
    long = sum(len(line) for line in text.split("\n") if len(line) > LONG_LINE_CHARACTERS)
    return "part" if 2 * long >= len(text) else "line"


def split_pieces(text: str, unit: Literal["line", "part"]) -> list[Piece]:
    """The text as lines (split on newline alone), or as parts of lines; `join_pieces` is the inverse."""
    lines = text.split("\n")
    if unit == "line":
        return [Piece(line, True) for line in lines]
    pieces: list[Piece] = []
    for line in lines:
        *inner, last = cut_parts(line)
        pieces.extend(Piece(part, False) for part in inner)
        pieces.append(Piece(last, True))
    return pieces


def cut_parts(line: str) -> list[str]:
    """The line cut after `, `, `; `, `> ` and an escaped newline: each cut depends on two characters alone."""
    parts = [part for part in _PART_ENDS.split(line) if part]
    return parts or [""]


def join_pieces(pieces: list[Piece]) -> str:
    """The text of these pieces; a line end follows every piece that ends its line, but the last."""
    if not pieces:
        return ""
    text = "".join(piece.text + "\n" if piece.ends_line else piece.text for piece in pieces)
    return text[:-1] if pieces[-1].ends_line else text


def piece_key(piece: Piece, unit: Literal["line", "part"]) -> tuple[Key, int]:
    """Key and number of a piece. Parts carry no number; one that does not end its line never equals a whole line."""
    if unit == "line":
        return number_key(piece.text)
    return (piece.text if piece.ends_line else (piece.text,)), 0
