"""A sentence-transformers model: canonical in fp32, one text at a time; quicker in batches and bf16.

On the CPU an operation has one thread. On a GPU the rows stay there, and the host gets a copy of them.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from threading import Lock, local
from typing import TYPE_CHECKING, Any

import numpy as np

from lam_vllm.encoders.base import Pass, Traits
from lam_vllm.encoders.device import Kind, gpu_facts, prepare_cuda
from lam_vllm.encoders.tokens import check_length, content_offsets, encodable, unlimited
from lam_vllm.encoders.torch_settings import canonical_torch
from lam_vllm.encoders.unit import unit, unit_tensor
from lam_vllm.errors import EncoderError
from lam_vllm.ops.on_device import DeviceArrays
from lam_vllm.types import Embedding

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer

MODEL_FILES = ("*.json", "*.safetensors", "*.txt", "*.model")
WINDOW_LIMIT_TOKENS = 512
_LIBRARIES = ("torch", "transformers", "sentence-transformers", "tokenizers")
_SETTINGS = ("ONEDNN_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE")
"""Variables that choose other kernels below torch."""
_BATCHES: dict[Kind, tuple[int, ...]] = {"cpu": (1, 8), "cuda": (1, 8, 32)}
"""Batches worth a try. With AMX eight windows are quickest; without it a window alone is, since it stays in cache."""
_PROBE = "the same text twice " * 20
"""Encoded at the start."""


class SentenceTransformerEncoder:
    """A `BatchEncoder` over a folder in the layout of sentence-transformers. Threads may encode at the same time."""

    def __init__(self, folder: Path, name: str, threshold_cos: float, traits: Traits | None = None) -> None:
        """Loads the model onto the device of `traits`; torch and sentence-transformers must be installed.

        Raises:
            Whatever sentence-transformers raises for a folder that it cannot load, or torch where memory runs out.
            EncoderError: the model has no tokenizer that reports character offsets.
            EncoderError: as `encode`; or a text does not get the same bits twice.
        """
        from sentence_transformers import SentenceTransformer

        self.name = name
        self.threshold_cos = threshold_cos
        self.traits = traits or Traits()
        self._kind = self.traits.device.kind
        if self._kind == "cuda":
            prepare_cuda()
        self._local, self._making = local(), Lock()
        self._bf16: SentenceTransformer | None = None
        self._model = SentenceTransformer(str(folder), device=self._kind, local_files_only=True).float().eval()
        self._tokenizer = _own_tokenizer(self._model, name)
        limit = _position_limit(self._model)
        self._model.max_seq_length = limit  # a package may set less than the positions that the model has
        self.window_tokens = limit - self._tokenizer.num_special_tokens_to_add(False)
        self.fingerprint = _fingerprint(folder, limit, self._kind)
        self.dimension = self._probed()

    def token_offsets(self, text: str) -> list[tuple[int, int]]:
        """Character spans of the text's content tokens; see `Encoder`."""
        return content_offsets(self._tokenizer, text)

    def encode(self, text: str) -> Embedding:
        """Canonical embedding of one window; see `Encoder`."""
        return self.traits.arrays.alone(self._encode([text], "fp32"), 0)

    def passes(self) -> Sequence[Pass]:
        """Batches in fp32, and in bf16 where this CPU or GPU multiplies in it."""
        return [
            Pass(f"{precision}, batches of {batch}", precision, batch, precision == "fp32" and batch == 1)
            for precision in (["fp32", "bf16"] if _has_bf16(self._kind) else ["fp32"])
            for batch in _BATCHES[self._kind]
        ]

    def encode_batch(self, texts: Sequence[str], way: Pass) -> Embedding:
        """Several windows at once, the shorter ones padded; see `BatchEncoder`."""
        return self._encode(texts, way.precision)

    def _encode(self, texts: Sequence[str], precision: str) -> Embedding:
        for text in texts:
            check_length(len(self.token_offsets(text)), self.window_tokens)
        arrays = self.traits.arrays
        with canonical_torch(cuda=self._kind == "cuda"):
            vectors = self._view(precision).encode(
                list(map(encodable, texts)),
                batch_size=len(texts),
                show_progress_bar=False,
                normalize_embeddings=True,
                convert_to_tensor=isinstance(arrays, DeviceArrays),
            )
        if isinstance(arrays, DeviceArrays):
            return arrays.received(unit_tensor(vectors, self.name))
        return np.stack([unit(vector, self.name) for vector in np.asarray(vectors)])

    def _probed(self) -> int:
        """D, of a text that has to get the same bits twice: on a GPU that is no matter of course."""
        first, again = self.encode(_PROBE), self.encode(_PROBE)
        if first.tobytes() != again.tobytes():
            raise EncoderError(f"encoder {self.name!r}: a text does not get the same embedding twice on {self._kind}")
        return int(first.shape[0])

    def _view(self, precision: str) -> SentenceTransformer:
        """This thread's copy of the model, which shares the weights: a tokenizer is set up anew on every call."""
        views: dict[str, SentenceTransformer] = self._local.__dict__
        if precision not in views:
            views[precision] = _with_own_tokenizer(self._model if precision == "fp32" else self._half())
        return views[precision]

    def _half(self) -> SentenceTransformer:
        """The model with its transformer in bf16; what pools its output and scales it stays in fp32."""
        with self._making:
            if self._bf16 is None:
                self._bf16 = _in_bf16(self._model)
        return self._bf16


def _with_own_tokenizer(model: SentenceTransformer) -> SentenceTransformer:
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared)


def _has_bf16(kind: Kind) -> bool:
    import torch

    if kind == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _in_bf16(model: SentenceTransformer) -> SentenceTransformer:
    import torch

    half = copy.deepcopy(model)
    half[0].to(torch.bfloat16).register_forward_hook(_widened)
    return half


def _widened(_module: object, _inputs: object, features: dict[str, Any]) -> dict[str, Any]:
    return {name: value.float() if _is_half(value) else value for name, value in features.items()}


def _is_half(value: object) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16


def _own_tokenizer(model: SentenceTransformer, name: str) -> Tokenizer:
    """A copy of the model's own, which is set to truncate and pad on each call."""
    backend = getattr(model.tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise EncoderError(f"encoder {name!r}: its tokenizer reports no character offsets (a fast tokenizer does)")
    return unlimited(backend)


def _position_limit(model: SentenceTransformer) -> int:
    """Tokens that the model has positions for, special ones included, at most `WINDOW_LIMIT_TOKENS`."""
    for module_name, module in model.named_modules():
        if module_name.endswith("position_embeddings"):
            # RoBERTa and its kin count positions from the one after the padding index.
            unused = 0 if module.padding_idx is None else int(module.padding_idx) + 1
            return min(WINDOW_LIMIT_TOKENS, int(module.num_embeddings) - unused)
    return min(WINDOW_LIMIT_TOKENS, model.max_seq_length or WINDOW_LIMIT_TOKENS)


def _fingerprint(folder: Path, limit: int, kind: Kind) -> str:
    import torch

    versions = [f"{library} {version(library)}" for library in _LIBRARIES]
    settings = [f"{name}={os.environ[name]}" for name in _SETTINGS if name in os.environ]
    chip = torch.backends.cpu.get_cpu_capability() if kind == "cpu" else gpu_facts()
    facts = [*versions, kind, chip, f"positions {limit}", *settings]
    digest = hashlib.blake2b(json.dumps(facts).encode(), digest_size=16)
    for path in sorted({path for pattern in MODEL_FILES for path in folder.rglob(pattern)}):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").digest()
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + content)
    return digest.hexdigest()
