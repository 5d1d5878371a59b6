"""What text costs in the served model's tokens, counted no further than a decision needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from lam_vllm.lines import Piece, join_pieces

MARGIN_TOKENS = 6
"""A stub must pay by more than this: stubs that barely pay break up later targets, and the margin absorbs what a
tokenizer merges over line ends."""
_CACHED_LINES = 65_536


class Prices:
    """Token counts of lines, stubs and runs, memoised by content."""

    def __init__(self, count_tokens: Callable[[str], int]) -> None:
        self._count = count_tokens
        self._short = lru_cache(maxsize=_CACHED_LINES)(count_tokens)

    def piece(self, piece: Piece) -> int:
        """Tokens of one line with its line end, or of one part."""
        return self._short(piece.text + "\n" if piece.ends_line else piece.text)

    def stub(self, text: str) -> int:
        """Tokens of a stub with its line end."""
        return self._short(text + "\n")

    def exceed(self, pieces: Iterable[Piece], limit: int) -> bool:
        """Whether the pieces cost more than `limit`; stops counting as soon as they do."""
        total = 0
        for piece in pieces:
            total += self.piece(piece)
            if total > limit:
                return True
        return False

    def pieces(self, pieces: list[Piece]) -> int:
        """Tokens of a run of pieces, counted as one text."""
        return self._count(join_pieces(pieces) + "\n") if pieces else 0

    def text(self, text: str) -> int:
        """Tokens of a text that is not worth remembering."""
        return self._count(text)
