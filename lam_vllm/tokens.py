"""Counting tokens of the served model away from the event loop, here or in another process."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from threading import Lock
from typing import Any, TypeAlias

from lam_vllm.errors import EncoderError

PortableTokenizer: TypeAlias = str | bytes
"""A tokenizer that another process can have: a fast one as its JSON text, any other one pickled."""


def portable_tokenizer(tokenizer: Any) -> PortableTokenizer:
    """The tokenizer in a form that can travel.

    Raises:
        EncoderError: it is a slow one that cannot be pickled.
    """
    backend = getattr(tokenizer, "_tokenizer", None)
    if backend is not None and hasattr(backend, "to_str"):
        return str(backend.to_str())
    try:
        return pickle.dumps(tokenizer)
    except Exception as error:  # pickling runs code of the object's own
        kind = type(tokenizer).__name__
        raise EncoderError(
            f"the model's tokenizer ({kind}) cannot be given to the encoder's process: {error}; use --lam-profile exact"
        ) from error


def token_counter(tokenizer: Any) -> Callable[[str], int]:
    """A function from text to its number of tokens, special tokens not added.

    A fast tokenizer is copied: vLLM sets truncation on its own while it encodes, and the Rust object refuses to be
    changed in one thread while another reads it. A slow one is used as it is, by one thread at a time.
    """
    backend = getattr(tokenizer, "_tokenizer", None)
    if backend is None or not hasattr(backend, "to_str"):
        return _slow_token_counter(tokenizer)
    return portable_token_counter(str(backend.to_str()))


def portable_token_counter(tokenizer: PortableTokenizer) -> Callable[[str], int]:
    """As `token_counter`, for what `portable_tokenizer` made in the process that started this one."""
    if isinstance(tokenizer, bytes):
        return _slow_token_counter(pickle.loads(tokenizer))
    from tokenizers import Tokenizer

    return fast_token_counter(Tokenizer.from_str(tokenizer))


def _slow_token_counter(tokenizer: Any) -> Callable[[str], int]:
    taking_turns = Lock()

    def count(text: str) -> int:
        with taking_turns:
            return len(tokenizer.encode(text, add_special_tokens=False))

    return count


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
        except Exception:
            raise
        except BaseException as error:  # a panic in Rust is no Exception, and nobody up there would catch it
            raise RuntimeError(f"the tokenizer failed: {error}") from error

    return count
