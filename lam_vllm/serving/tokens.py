"""Counting tokens of the served model away from the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def token_counter(tokenizer: Any) -> Callable[[str], int]:
    """A function from text to its number of tokens, special tokens not added.

    A fast tokenizer is copied: vLLM sets truncation on its own while it encodes, and the Rust object refuses to be
    changed in one thread while another reads it. A slow one is used as it is.
    """
    backend = getattr(tokenizer, "_tokenizer", None)
    if backend is None or not hasattr(backend, "to_str"):
        return lambda text: len(tokenizer.encode(text, add_special_tokens=False))
    from tokenizers import Tokenizer

    return fast_token_counter(Tokenizer.from_str(backend.to_str()))


def fast_token_counter(own: Any) -> Callable[[str], int]:
    """As `token_counter`, for a `tokenizers.Tokenizer` that nobody else uses: it is set not to truncate nor to pad."""
    own.no_truncation()
    own.no_padding()

    def tokens(text: str) -> int:
        # A batch of one, since `encode` holds the interpreter until a text of any length is done.
        return len(own.encode_batch_fast([text], add_special_tokens=False)[0])

    def count(text: str) -> int:
        try:
            return tokens(text)
        except (UnicodeError, TypeError):  # a lone surrogate: vLLM will refuse the prompt in its own words
            return tokens(text.encode("utf-8", "replace").decode())

    return count
