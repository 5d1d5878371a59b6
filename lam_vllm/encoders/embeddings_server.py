"""The route /v1/embeddings of an OpenAI-compatible server."""

from __future__ import annotations

import base64
import weakref
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from lam_vllm.errors import EncoderError, EncoderUnreachableError, MissingExtraError

if TYPE_CHECKING:
    import httpx

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 60.0
_BAD_INPUT = 400
_UNKNOWN_FORMAT = (400, 422)  # what servers answer that do not know base64
_SHOWN_CHARACTERS = 300


class Embedded(NamedTuple):
    """One vector for each text, in their order, and the tokens that the server says it read (0: it does not say)."""

    vectors: list[NDArray[np.floating[Any]]]
    tokens: int


class EmbeddingsServer:
    """One model of one server. Threads may ask at the same time; connections are kept and shared."""

    def __init__(self, url: str, model: str, key: str, asker: str) -> None:
        """`url` with or without /v1; `key` is "" where the server asks for none; `asker` opens every error.

        Raises:
            MissingExtraError: httpx is not installed.
        """
        if find_spec("httpx") is None:
            raise MissingExtraError("an encoder on a server", "encoder", "profile exact")
        self.url = url.rstrip("/").removesuffix("/v1") + "/v1/embeddings"
        self._model, self._key, self._asker = model, key, asker
        self._format = "base64"  # a quarter of the bytes of floats in words
        self._client = _client(key)
        weakref.finalize(self, self._client.close)

    def embed(self, texts: Sequence[str]) -> Embedded:
        """The server's vectors for at least one text, none of which holds a lone surrogate.

        Raises:
            EncoderUnreachableError: the server cannot be reached, refuses, or is slow.
            EncoderError: it refuses these texts, or answers with something else than one vector for each; names server
                and cause, never the key.
        """
        response = self._post(texts, self._format)
        if self._format == "base64" and response.status_code in _UNKNOWN_FORMAT:
            response = self._post(texts, "float")
            self._format = "float" if response.is_success else "base64"
        if not response.is_success:
            raise self.error(
                f"answered {response.status_code}: {response.text}", of_all=response.status_code != _BAD_INPUT
            )
        answer = self._read(response.content)
        items = sorted(answer.data, key=lambda item: item.index)
        if [item.index for item in items] != list(range(len(texts))):
            raise self.error(f"gave embeddings {[item.index for item in items]} for {len(texts)} texts")
        tokens = answer.usage.prompt_tokens if answer.usage else 0
        return Embedded([self._decoded(item.embedding) for item in items], tokens)

    def error(self, cause: str, *, of_all: bool = False) -> EncoderError:
        """An error that names this server; whatever of the key stands in `cause` is left out.

        `of_all` says that it is not about these texts: others would fare no better.
        """
        shown = cause.replace(self._key, "***") if self._key else cause  # servers repeat what they were sent
        kind = EncoderUnreachableError if of_all else EncoderError
        return kind(f"{self._asker}: the server at {self.url} {' '.join(shown.split())[:_SHOWN_CHARACTERS]}")

    def _post(self, texts: Sequence[str], encoding: str) -> httpx.Response:
        """The answer. Asked once more after a broken connection, since a kept one may have been closed meanwhile."""
        import httpx

        body = {"model": self._model, "input": list(texts), "encoding_format": encoding}
        try:
            try:
                return self._client.post(self.url, json=body)
            except (httpx.NetworkError, httpx.RemoteProtocolError):
                return self._client.post(self.url, json=body)
        except httpx.TimeoutException as error:
            raise self.error(f"is too slow: {type(error).__name__}", of_all=True) from None
        except httpx.HTTPError as error:
            raise self.error(f"cannot be asked: {type(error).__name__}: {error}", of_all=True) from None

    def _read(self, content: bytes) -> _Answer:
        try:
            return _Answer.model_validate_json(content)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise self.error(f"gave no list of embeddings: {place}{': ' if place else ''}{first['msg']}") from None

    def _decoded(self, sent: str | list[float]) -> NDArray[np.floating[Any]]:
        if not isinstance(sent, str):
            return np.array(sent, dtype=np.float64)
        try:
            return np.frombuffer(base64.b64decode(sent, validate=True), dtype="<f4")
        except ValueError as error:
            raise self.error(f"gave an embedding that is not base64 of float32: {error}") from None


class _Item(BaseModel):
    index: int
    embedding: str | list[float]


class _Usage(BaseModel):
    prompt_tokens: int = 0


class _Answer(BaseModel):
    data: list[_Item]
    usage: _Usage | None = None


def _client(key: str) -> httpx.Client:
    import httpx

    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.Client(headers=headers, timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS))
