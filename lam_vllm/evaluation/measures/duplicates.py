"""Byte-exact duplicates by granularity (the paper's table 5): what an exact layer alone could take, at most."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lam_vllm.windows import TokenOffsets, fixed_windows

Granularity: TypeAlias = Literal["record", "paragraph", "window", "line"]
WINDOW_TOKENS = 512
_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*\n)+")


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Tokens of all units of one granularity, and of those that are byte-equal to an earlier one of the same run."""

    tokens: int
    duplicate_tokens: int

    @property
    def share(self) -> float:
        """Of the tokens of all units, in 0..1."""
        return self.duplicate_tokens / max(1, self.tokens)


def duplicates(
    runs: Iterable[Sequence[str]], offsets: TokenOffsets, window_tokens: int = WINDOW_TOKENS
) -> dict[Granularity, Duplicates]:
    """Duplicates over all runs together; a run is the texts of its tool results, and equal text counts only within it.

    A record is a whole text; a paragraph what stands between blank lines; a window `window_tokens` tokens, cut anew
    in each text; a line what stands between line ends, which belong to no line. A unit counts the tokens of its text.

    Raises:
        ValueError: `window_tokens` is below 1.
    """
    splits: dict[Granularity, Callable[[str], Iterable[str]]] = {
        "record": lambda text: [text],
        "paragraph": _BLANK_LINES.split,
        "window": lambda text: _windows(text, offsets, window_tokens),
        "line": lambda text: text.split("\n"),
    }
    runs = list(runs)
    return {name: _counted(runs, split, offsets) for name, split in splits.items()}


def _windows(text: str, offsets: TokenOffsets, window_tokens: int) -> list[str]:
    return [text[window.start : window.end] for window in fixed_windows(text, offsets, window_tokens)]


def _counted(runs: Iterable[Sequence[str]], split: Callable[[str], Iterable[str]], offsets: TokenOffsets) -> Duplicates:
    tokens = duplicate_tokens = 0
    for texts in runs:
        size: dict[str, int] = {}
        for text in texts:
            for unit in split(text):
                known = unit in size
                size.setdefault(unit, 0 if known else len(offsets(unit)))
                tokens += size[unit]
                duplicate_tokens += known * size[unit]
    return Duplicates(tokens, duplicate_tokens)
