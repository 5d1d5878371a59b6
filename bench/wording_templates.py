"""How questions are put: each template makes questions, with their answers, of a passage that a reference stands for.

The assistant's answer is begun for it, and it goes on: a model too small to follow an instruction can still copy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

ANSWER_CHARACTERS = range(6, 51)
KEY_CHARACTERS = range(8, 101)
BEGUN_LINES = 3
FENCE = "```\n"
AGAIN = "Print the last tool output again, from the middle."
_NUMBERED = re.compile(r" *[1-9][0-9]*(?::|\t|\||-|→) ?(.*)")


class Passage(NamedTuple):
    """The lines, or parts of lines, that a reference stands for, and the lines kept directly before them."""

    lines: Sequence[str]
    before: Sequence[str]
    glue: str
    """What stands between two of them: a newline, or nothing between parts."""


class Asked(NamedTuple):
    """A question, the begun answer, what of it must be unambiguous (`key`), and what a right reply goes on with."""

    words: str
    begun: str
    key: str
    answer: str


def following(passage: Passage) -> Iterator[Asked]:
    """The line after lines that are gone as well."""
    for place in range(1, len(passage.lines)):
        yield _going_on(passage.lines[max(0, place - BEGUN_LINES) : place], passage.lines[place], passage.glue)


def beginning(passage: Passage) -> Iterator[Asked]:
    """The rest of a line whose first half is given."""
    for line in passage.lines:
        words = line.rstrip().split(" ")
        half = " ".join(words[: (len(words) + 1) // 2])
        yield Asked(
            f"Copy the line of the tool output that begins with `{bare_text(half)}`.",
            FENCE + bare_text(half),
            bare_text(half),
            line.rstrip()[len(half) :].strip(),
        )


def through(passage: Passage) -> Iterator[Asked]:
    """The first line that is gone, after lines that are kept: with the plugin on, the reference must be followed."""
    if passage.before:
        yield _going_on(passage.before[-BEGUN_LINES:], passage.lines[0], "\n")


TEMPLATES: dict[str, Callable[[Passage], Iterator[Asked]]] = {
    "following": following,
    "beginning": beginning,
    "through": through,
}


def fit(asked: Asked) -> bool:
    """Whether key and answer are of a length that can be told apart."""
    return len(asked.answer) in ANSWER_CHARACTERS and len(asked.key) in KEY_CHARACTERS


def bare_text(line: str) -> str:
    """A line without its number and the blanks around it."""
    found = _NUMBERED.fullmatch(line.rstrip("\r"))
    return (found[1] if found else line).strip()


def _going_on(shown: Sequence[str], after: str, glue: str) -> Asked:
    begun = FENCE + glue.join(line.rstrip("\r") for line in shown).rstrip()
    return Asked(AGAIN, begun, bare_text(shown[-1]), bare_text(after))
