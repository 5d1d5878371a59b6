"""A tokenizer, and a token counter, from its file, folder or hub name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tokenizers import Tokenizer

from lam_vllm.errors import OptionError
from lam_vllm.tokens import fast_token_counter

ALLOWED = "a tokenizer.json, a folder that holds one, or a name on the model hub"


def load_token_counter(name: str) -> Callable[[str], int]:
    """A function from text to its number of tokens, without special tokens. Raises as `load_tokenizer`."""
    return fast_token_counter(load_tokenizer(name))


def load_tokenizer(name: str) -> Tokenizer:
    """The tokenizer of this name.

    Raises:
        OptionError: there is no such tokenizer, here or on the hub.
    """
    path = Path(name) / "tokenizer.json" if Path(name).is_dir() else Path(name)
    try:
        return Tokenizer.from_file(str(path)) if path.exists() else Tokenizer.from_pretrained(name)
    except Exception as error:  # noqa: BLE001 - the library raises plain Exception for files and for the hub alike
        raise OptionError("tokenizer", name, f"{ALLOWED} ({error})") from None
