"""The content tokens of a text, as an encoder's own tokenizer counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def unlimited(tokenizer: Tokenizer) -> Tokenizer:
    """A copy that nobody else reconfigures, and that neither truncates nor pads."""
    from tokenizers import Tokenizer

    own = Tokenizer.from_str(tokenizer.to_str())
    own.no_truncation()
    own.no_padding()
    return own


def encodable(text: str) -> str:
    """The text with "?" for each lone surrogate, which tokenizers refuse; of the same length, so offsets hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def content_offsets(tokenizer: Tokenizer, text: str) -> list[tuple[int, int]]:
    """Character spans of the text's tokens, special ones left out. Safe to call from several threads."""
    # A batch of one, since `encode` holds the interpreter until a text of any length is done.
    (encoding,) = tokenizer.encode_batch([encodable(text)], add_special_tokens=False)
    offsets: list[tuple[int, int]] = encoding.offsets
    return offsets


def check_length(tokens: int, window_tokens: int) -> None:
    """Nothing, where a window of `tokens` fits.

    Raises:
        ValueError: it does not; the model would not see its end.
    """
    if tokens > window_tokens:
        raise ValueError(f"text: {tokens} tokens are not allowed; allowed: at most {window_tokens}")
