"""Text to windows of the encoder's token budget: character spans that tile the text."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from lam_vllm.types import Window

TokenOffsets: TypeAlias = Callable[[str], Sequence[tuple[int, int]]]
"""Character spans of a text's content tokens, without special tokens."""


def fixed_windows(text: str, offsets: TokenOffsets, budget: int) -> tuple[Window, ...]:
    """Windows of `budget` tokens each, the last one shorter, cut where a token starts; they tile the text.

    A piece of a cut word may be more tokens by itself than within its word: such a window ends a few tokens earlier,
    so that no window is over the budget (unless one token alone is). Empty text has no windows. Linear in the text.

    Raises:
        ValueError: `budget` is below 1.
    """
    starts = _token_starts(text, offsets, budget)
    if len(starts) <= budget:
        return _whole(text, starts)
    return tuple(_cut_at_tokens(_Tokens(text, starts, offsets, budget), 0, len(text)))


def line_windows(text: str, offsets: TokenOffsets, budget: int) -> tuple[Window, ...]:
    r"""Windows of as many whole lines as fit into `budget` tokens; they tile the text.

    Lines end with "\n" alone, which belongs to the line that it ends. A line over the budget is cut like
    `fixed_windows`, into windows of its own. Empty text has no windows. Linear in the text.

    Raises:
        ValueError: `budget` is below 1.
    """
    starts = _token_starts(text, offsets, budget)
    if len(starts) <= budget:
        return _whole(text, starts)
    return tuple(_cut_at_lines(_Tokens(text, starts, offsets, budget)))


class _Tokens:
    """A text with its tokens: what may still be said about a span of it without tokenising the whole again."""

    def __init__(self, text: str, starts: list[int], offsets: TokenOffsets, budget: int) -> None:
        self.text = text
        self.starts = starts
        self.offsets = offsets
        self.budget = budget

    def longest(self, start: int, cuts: Sequence[int]) -> Window | None:
        """The longest window from `start` to one of the ascending `cuts` that is within the budget by itself."""
        after = bisect_left(self.starts, start) + self.budget
        limit = self.starts[after] if after < len(self.starts) else len(self.text)
        for position in range(bisect_right(cuts, limit) - 1, -1, -1):
            end = cuts[position]
            if end <= start:
                break
            tokens = self.count(start, end)
            if tokens <= self.budget:
                return Window(start, end, tokens)
        return None

    def count(self, start: int, end: int) -> int:
        return len(self.offsets(self.text[start:end]))


def _token_starts(text: str, offsets: TokenOffsets, budget: int) -> list[int]:
    if budget < 1:
        raise ValueError(f"budget: {budget} is not allowed; allowed: an integer of at least 1")
    # Sorted, because a tokenizer that reorders combining marks may report their spans out of order.
    return sorted(start for start, _ in offsets(text)) if text else []


def _whole(text: str, starts: list[int]) -> tuple[Window, ...]:
    return (Window(0, len(text), len(starts)),) if text else ()


def _cut_at_tokens(tokens: _Tokens, start: int, end: int) -> Iterator[Window]:
    first, last = bisect_right(tokens.starts, start), bisect_left(tokens.starts, end)
    cuts = [*tokens.starts[first:last], end]
    while start < end:
        window = tokens.longest(start, cuts)
        if window is None:  # one token is more than the budget by itself, and nothing shorter may be cut
            next_cut = cuts[bisect_right(cuts, start)]
            window = Window(start, next_cut, tokens.count(start, next_cut))
        yield window
        start = window.end


def _cut_at_lines(tokens: _Tokens) -> Iterator[Window]:
    line_ends = [found.end() for found in re.finditer("\n", tokens.text)]
    if not line_ends or line_ends[-1] < len(tokens.text):
        line_ends.append(len(tokens.text))
    start = 0
    while start < len(tokens.text):
        window = tokens.longest(start, line_ends)
        if window is not None:
            yield window
            start = window.end
        else:
            line_end = line_ends[bisect_right(line_ends, start)]
            yield from _cut_at_tokens(tokens, start, line_end)
            start = line_end
