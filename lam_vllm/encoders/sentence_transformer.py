"""The canonical encoder: a sentence-transformers model in fp32, one text at a time, on one CPU thread."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from lam_vllm.errors import EncoderError
from lam_vllm.types import Embedding

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer

MODEL_FILES = ("*.json", "*.safetensors", "*.txt", "*.model")
WINDOW_LIMIT_TOKENS = 512
NORM_TOLERANCE = 1e-3
_LIBRARIES = ("torch", "transformers", "sentence-transformers", "tokenizers")
_DEVICE = "cpu"
_torch_settings = Lock()  # torch keeps them per process, so two encoders must not change them at once


class SentenceTransformerEncoder:
    """An `Encoder` over a folder in the layout of sentence-transformers. Thread-safe; one text is encoded at a time."""

    def __init__(self, folder: Path, name: str, threshold_cos: float) -> None:
        """Loads the model; torch and sentence-transformers must be installed.

        Raises:
            EncoderError: the model has no tokenizer that reports character offsets.
            Whatever sentence-transformers raises for a folder that it cannot load.
        """
        from sentence_transformers import SentenceTransformer

        self.name = name
        self.threshold_cos = threshold_cos
        self._model = SentenceTransformer(str(folder), device=_DEVICE, local_files_only=True).float().eval()
        self._tokenizer = _own_tokenizer(self._model, name)
        limit = _position_limit(self._model)
        self._model.max_seq_length = limit  # a package may set less than the positions that the model has
        self.window_tokens = limit - self._tokenizer.num_special_tokens_to_add(False)
        self.fingerprint = _fingerprint(folder, limit)
        self.dimension = int(self.encode("dimension").shape[0])

    def token_offsets(self, text: str) -> list[tuple[int, int]]:
        """Character spans of the text's content tokens; see `Encoder`."""
        # A batch of one, since `encode` holds the interpreter until a text of any length is done.
        (encoding,) = self._tokenizer.encode_batch([_encodable(text)], add_special_tokens=False)
        offsets: list[tuple[int, int]] = encoding.offsets
        return offsets

    def encode(self, text: str) -> Embedding:
        """Canonical embedding of one window; see `Encoder`."""
        tokens = len(self.token_offsets(text))
        if tokens > self.window_tokens:
            raise ValueError(f"text: {tokens} tokens are not allowed; allowed: at most {self.window_tokens}")
        with _canonical_torch():
            vectors = self._model.encode(
                [_encodable(text)], batch_size=1, show_progress_bar=False, normalize_embeddings=True
            )
        return _unit(np.asarray(vectors)[0], self.name)


@contextmanager
def _canonical_torch() -> Iterator[None]:
    """One thread and full fp32 products while inside: both change the bits, and a host process may set either."""
    import torch

    with _torch_settings:
        threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
        torch.set_num_threads(1)
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            torch.set_float32_matmul_precision(precision)


def _encodable(text: str) -> str:
    """The text with "?" for each lone surrogate, which tokenizers refuse; of the same length, so offsets hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _own_tokenizer(model: SentenceTransformer, name: str) -> Tokenizer:
    """A copy that nobody else reconfigures: the model's own is set to truncate and pad on each call."""
    from tokenizers import Tokenizer

    backend = getattr(model.tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise EncoderError(f"encoder {name!r}: its tokenizer reports no character offsets (a fast tokenizer does)")
    own = Tokenizer.from_str(backend.to_str())
    own.no_truncation()
    own.no_padding()
    return own


def _position_limit(model: SentenceTransformer) -> int:
    """Tokens that the model has positions for, special ones included, at most `WINDOW_LIMIT_TOKENS`."""
    for module_name, module in model.named_modules():
        if module_name.endswith("position_embeddings"):
            # RoBERTa and its kin count positions from the one after the padding index.
            unused = 0 if module.padding_idx is None else int(module.padding_idx) + 1
            return min(WINDOW_LIMIT_TOKENS, int(module.num_embeddings) - unused)
    return min(WINDOW_LIMIT_TOKENS, model.max_seq_length or WINDOW_LIMIT_TOKENS)


def _fingerprint(folder: Path, limit: int) -> str:
    import torch

    versions = [f"{library} {version(library)}" for library in _LIBRARIES]
    facts = [*versions, _DEVICE, torch.backends.cpu.get_cpu_capability(), f"positions {limit}"]
    digest = hashlib.blake2b(json.dumps(facts).encode(), digest_size=16)
    for path in sorted({path for pattern in MODEL_FILES for path in folder.rglob(pattern)}):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").digest()
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + content)
    return digest.hexdigest()


def _unit(vector: Embedding, name: str) -> Embedding:
    """The vector scaled to unit length in float64, which must have been nearly that."""
    wide = vector.astype(np.float64)
    norm = float(np.sqrt(np.square(wide).sum()))
    if not abs(norm - 1.0) <= NORM_TOLERANCE:  # written so that NaN fails too
        raise EncoderError(f"encoder {name!r} returned a vector of norm {norm}; expected 1 within {NORM_TOLERANCE}")
    return (wide / norm).astype(np.float32)
