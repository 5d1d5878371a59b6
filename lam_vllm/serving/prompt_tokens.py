"""Tokens of a prompt where no engine renders one: an estimate, of the texts alone."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence

from lam_vllm.messages import printed_texts
from lam_vllm.types import Message

MAX_TEXTS = 65_536


class PromptTokens:
    """Counts the texts that a chat template would print, each of them once: a turn costs its new texts and a hash.

    Used by one thread at a time. Holds counts under hashes, least recently used first out, and no text.
    """

    def __init__(self, count_tokens: Callable[[str], int], max_texts: int = MAX_TEXTS) -> None:
        self._count_tokens = count_tokens
        self._max_texts = max_texts
        self._counts: OrderedDict[bytes, int] = OrderedDict()

    def count(self, messages: Sequence[Message], salt: str) -> int:
        """Tokens of all texts of the messages. No count made under one salt is used under another."""
        seed = hashlib.blake2b(salt.encode(errors="surrogatepass"), digest_size=16).digest()
        return sum(self._tokens(text, seed) for message in messages for text in printed_texts(message))

    def _tokens(self, text: str, seed: bytes) -> int:
        key = hashlib.blake2b(text.encode(errors="surrogatepass"), key=seed, digest_size=16).digest()
        tokens = self._counts.pop(key, None)
        if tokens is None:
            tokens = self._count_tokens(text)
        self._counts[key] = tokens
        while len(self._counts) > self._max_texts:
            self._counts.popitem(last=False)
        return tokens
