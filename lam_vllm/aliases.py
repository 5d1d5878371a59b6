"""Short names for directories that begin many lines of one listing (option `directory_aliases`).

A listing prints the same directory in front of every name. Its first printed lines then define `@1/`, and so on, and
lines that begin with such a directory begin with its short name instead: a line is its alias written out, and the rest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import islice
from typing import TypeAlias

from lam_vllm.stubs import DIRECTORY_CHARACTERS, Stub, format_stub, parse_stub

Aliases: TypeAlias = tuple[str, ...]
"""Directories, each with its last slash; the first is `@1/`, which no shell expands."""

MOST_ALIASES = 3
"""More than a reader keeps in mind."""
DEEPEST = 24
"""Directories deeper than this have no names of their own: a bound on work."""
NAME_CHARACTERS = 10
"""A short name costs three tokens, as much as some ten characters of a path."""
LEAST_GAIN_CHARACTERS = 50
"""A definition costs some ten tokens besides the directory that it names."""
_SHORT_NAME = re.compile("@[0-9]+/")
_DIRECTORY = re.compile(rf"[^\s\[\]]{{0,{DIRECTORY_CHARACTERS}}}/")


def choose_aliases(pieces: Sequence[str], known: Collection[object]) -> Aliases:
    """The directories whose short names save most in lines that are not `known`: greedy, and by characters alone.

    What they save in tokens, in the lines that then stay, is for the caller to count.
    """
    if any(_SHORT_NAME.match(piece) for piece in pieces):  # it would be read as one of ours
        return ()
    lines: Counter[str] = Counter()
    for piece in pieces:
        if piece not in known and (found := _DIRECTORY.match(piece)) is not None:
            lines[found.group()] += 1
    told = dict.fromkeys(lines, NAME_CHARACTERS)  # how many characters of each directory need not be printed any more
    chosen: list[str] = []
    while len(chosen) < MOST_ALIASES:
        best, gain = _best(lines, told)
        if gain <= LEAST_GAIN_CHARACTERS:
            break
        chosen.append(best)
        told.update({name: max(told[name], len(best)) for name in lines if name.startswith(best)})
    return tuple(chosen)


def definitions(aliases: Aliases) -> list[str]:
    """The lines that define the short names, in order."""
    return [format_stub(Stub("alias", first=number, prefix=prefix)) for number, prefix in enumerate(aliases, start=1)]


def split_definitions(lines: list[str]) -> tuple[Aliases, list[str]]:
    """The directories that the first lines of a printed text define, and the other lines."""
    aliases: list[str] = []
    for line in lines:
        stub = parse_stub(line)
        if stub is None or stub.kind != "alias" or stub.first != len(aliases) + 1:
            break
        aliases.append(stub.prefix)
    return tuple(aliases), lines[len(aliases) :]


def shortened(piece: str, aliases: Aliases) -> str:
    """The line as it is printed: the longest directory that it begins with gives way to its short name."""
    alias = longest_alias(piece, aliases)
    return f"@{aliases.index(alias) + 1}/{piece.removeprefix(alias)}" if alias else piece


def longest_alias(piece: str, aliases: Aliases) -> str:
    """The longest of these directories that the piece begins with; empty: none."""
    return max((alias for alias in aliases if piece.startswith(alias)), key=len, default="")


def written_out(line: str, aliases: Aliases) -> str:
    """The inverse of `shortened`."""
    for number, prefix in enumerate(aliases, start=1):
        if line.startswith(f"@{number}/"):
            return prefix + line.removeprefix(f"@{number}/")
    return line


def _best(lines: Counter[str], told: dict[str, int]) -> tuple[str, int]:
    """The directory that saves most characters besides what is told already, and how many, its definition paid."""
    gains: Counter[str] = Counter()
    for directory, count in lines.items():
        for prefix in _ancestors(directory):
            if len(prefix) > told[directory]:
                gains[prefix] += count * (len(prefix) - told[directory])
    best = max(gains, key=lambda prefix: (gains[prefix] - len(prefix), prefix), default="")
    return best, gains[best] - len(best)


def _ancestors(directory: str) -> list[str]:
    """The directory and those that it lies in, the outermost few."""
    ends = (place + 1 for place, character in enumerate(directory) if character == "/")
    return [directory[:end] for end in islice(ends, DEEPEST)]
