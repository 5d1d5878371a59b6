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

    own = Tokenizer.from_str(backend.to_str())
    own.no_truncation()
    own.no_padding()

    def count(text: str) -> int:
        try:
            return len(own.encode(text, add_special_tokens=False))
        except (UnicodeError, TypeError):  # a lone surrogate: vLLM will refuse the prompt in its own words
            return len(own.encode(text.encode("utf-8", "replace").decode(), add_special_tokens=False))

    return count
