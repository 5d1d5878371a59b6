"""Counting tokens of the served model away from the event loop, here or in another process."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, TypeAlias

PortableTokenizer: TypeAlias = str | bytes
"""A tokenizer that another process can have: a fast one as its JSON text, any other one pickled."""


def portable_tokenizer(tokenizer: Any) -> PortableTokenizer:
    """The tokenizer as `token_counter` takes it. Raises whatever pickling a slow one raises."""
    backend = getattr(tokenizer, "_tokenizer", None)
    if backend is None or not hasattr(backend, "to_str"):
        return pickle.dumps(tokenizer)
    return str(backend.to_str())


def token_counter(tokenizer: PortableTokenizer) -> Callable[[str], int]:
    """A function from text to its number of tokens, special tokens not added.

    It uses a tokenizer of its own: vLLM sets truncation on the one it serves with while it encodes, and the Rust object
    refuses to be changed in one thread while another reads it.
    """
    if isinstance(tokenizer, bytes):
        slow = pickle.loads(tokenizer)  # made by `portable_tokenizer` in the process that started this one
        return lambda text: len(slow.encode(text, add_special_tokens=False))
    from tokenizers import Tokenizer

    return fast_token_counter(Tokenizer.from_str(tokenizer))


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
