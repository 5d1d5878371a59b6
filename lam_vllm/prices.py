"""What text costs in the served model's tokens, counted no further than a decision needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

MARGIN_TOKENS = 6
"""A stub must pay by more than this: stubs that barely pay break up later targets, and the margin absorbs what a
tokenizer merges over line ends."""
_CACHED_TEXTS = 65_536


class Prices:
    """Token counts of pieces, stubs and runs; short texts are memoised by content."""

    def __init__(self, count_tokens: Callable[[str], int]) -> None:
        self.text = count_tokens
        self.piece = lru_cache(maxsize=_CACHED_TEXTS)(count_tokens)

    def stub(self, text: str) -> int:
        """Tokens of a stub with its line end."""
        return self.piece(text + "\n")

    def exceed(self, pieces: Iterable[str], limit: int) -> bool:
        """Whether the pieces cost more than `limit`; stops counting as soon as they do."""
        total = 0
        for piece in pieces:
            total += self.piece(piece)
            if total > limit:
                return True
        return False

    def run(self, pieces: list[str]) -> int:
        """Tokens of a run of pieces, counted as one text."""
        return self.text("".join(pieces)) if pieces else 0
