"""An encoder that runs elsewhere, behind an OpenAI-compatible server."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lam_vllm.encoders.base import Pass, Traits
from lam_vllm.encoders.embeddings_server import EmbeddingsServer
from lam_vllm.encoders.profile import EncoderProfile
from lam_vllm.encoders.tokens import check_length, content_offsets, encodable, unlimited
from lam_vllm.encoders.unit import unit
from lam_vllm.errors import EncoderError
from lam_vllm.types import Embedding

if TYPE_CHECKING:
    from tokenizers import Tokenizer

DEFAULT_WINDOW_TOKENS = 510
_BATCHES = (1, 8, 32)


class RemoteEncoder:
    """A `BatchEncoder` over a server. Threads may encode at the same time.

    Canonical means here: the only input of its request. That is measured, not guaranteed. The server may compute such
    a request together with those of others, or on another kernel, and it may be changed behind its URL; whether the
    same text then has the same bits is the server's matter, and `fingerprint` holds the operator's word for it.
    """

    def __init__(self, profile: EncoderProfile, name: str, threshold_cos: float, traits: Traits | None = None) -> None:
        """Reads the tokenizer and asks the server once, for the dimension; `profile` must be one of a server.

        Raises:
            MissingExtraError: httpx is not installed.
            EncoderError: the key's variable is not set, the tokenizer cannot be read, or as `encode`.
        """
        assert profile.server and profile.served_model and profile.tokenizer  # the profile's own check
        self.name, self.threshold_cos, self.traits = name, threshold_cos, traits or Traits()
        key = _key(profile.api_key_variable, name)
        self._server = EmbeddingsServer(profile.server, profile.served_model, key, f"encoder {name!r}")
        self._tokenizer = _read_tokenizer(profile.tokenizer, name)
        self.window_tokens = profile.window_tokens or DEFAULT_WINDOW_TOKENS
        self.dimension = 0  # until the first answer
        self.fingerprint = _fingerprint(profile, self._tokenizer, self.window_tokens)
        self.dimension = self._encode(["dimension"]).shape[1]

    def token_offsets(self, text: str) -> list[tuple[int, int]]:
        """Character spans of the text's content tokens, by the local tokenizer; see `Encoder`."""
        return content_offsets(self._tokenizer, text)

    def encode(self, text: str) -> Embedding:
        """Embedding of a window that is the only input of its request; see the class.

        Raises:
            ValueError: the text has more than `window_tokens` tokens.
            EncoderError: the server cannot be reached, refuses, is slow, did not read the whole text, or answers with
                something else than a unit vector; names server and cause, never the key.
        """
        vector: Embedding = self._encode([text])[0]
        return vector

    def passes(self) -> Sequence[Pass]:
        """A few numbers of windows in one request, in whatever precision the server computes."""
        return [Pass(f"server, batches of {batch}", "server", batch) for batch in _BATCHES]

    def encode_batch(self, texts: Sequence[str], way: Pass) -> Embedding:  # noqa: ARG002  a server has one precision
        """Several windows in one request; see `BatchEncoder`. Raises as `encode`."""
        return self._encode(texts)

    def _encode(self, texts: Sequence[str]) -> Embedding:
        counts = [len(self.token_offsets(text)) for text in texts]
        for tokens in counts:
            check_length(tokens, self.window_tokens)
        vectors, read = self._server.embed([encodable(text) for text in texts])
        if 0 < read < sum(counts):
            why = "it truncates, or its tokenizer is not that of the profile"
            raise self._server.error(f"read {read} tokens of {sum(counts)}: {why}")
        sizes = {vector.size for vector in vectors}
        if sizes != {self.dimension or max(sizes)}:
            raise self._server.error(f"gave vectors of {sorted(sizes)} dimensions; expected {self.dimension}")
        return np.stack([unit(vector, f"{self.name} at {self._server.url}") for vector in vectors])


def _key(variable: str | None, name: str) -> str:
    """The server's key, or "" where it asks for none."""
    if variable is None:
        return ""
    key = os.environ.get(variable, "").strip()
    if not key or not (key.isascii() and key.isprintable()):
        state = "holds what cannot be sent in a header" if key else "is not set"
        raise EncoderError(f"encoder {name!r}: the environment variable {variable}, for the server's key, {state}")
    return key


def _read_tokenizer(source: str, name: str) -> Tokenizer:
    from tokenizers import Tokenizer

    path = Path(source) / "tokenizer.json" if Path(source).is_dir() else Path(source)
    local = path.suffix == ".json"
    try:
        return unlimited(Tokenizer.from_file(str(path)) if local else Tokenizer.from_pretrained(source))
    except Exception as error:  # the library raises bare Exceptions, the hub many kinds
        raise EncoderError(f"encoder {name!r}: the tokenizer {source!r} cannot be read: {error}") from error


def _fingerprint(profile: EncoderProfile, tokenizer: Tokenizer, window_tokens: int) -> str:
    """The operator's word, and a digest of what decides the windows on this side."""
    facts = f"{window_tokens} {tokenizer.to_str()}".encode()
    return f"{profile.fingerprint}, windows {hashlib.blake2b(facts, digest_size=8).hexdigest()}"
