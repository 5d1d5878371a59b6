"""What text costs in the served model's tokens, counted no further than a decision needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

MARGIN_TOKENS = 6
"""A stub must save more than this. One that saves next to nothing only costs later texts an unbroken target."""
_CACHED_TEXTS = 65_536


class Prices:
    """Token counts of pieces, stubs and runs. Pieces and stubs are memoised for as long as this object lives.

    One serves one call: a memo that outlived it would tell, by its speed, what other callers have sent.
    """

    def __init__(self, count_tokens: Callable[[str], int]) -> None:
        self.text = count_tokens
        self.piece = lru_cache(maxsize=_CACHED_TEXTS)(count_tokens)

    def stub(self, text: str) -> int:
        """Tokens of a stub with its line end."""
        return self.piece(text + "\n")

    def exceed(self, pieces: Iterable[str], limit: int) -> bool:
        """Whether the pieces cost more than `limit`, each by itself; stops counting as soon as they do.

        A sieve: a tokenizer may merge what it is given in one text (`run`), so the sum is only an upper estimate.
        """
        total = 0
        for piece in pieces:
            total += self.piece(piece)
            if total > limit:
                return True
        return False

    def run(self, pieces: list[str]) -> int:
        """Tokens of a run of pieces, counted as one text."""
        return self.text("".join(pieces)) if pieces else 0
