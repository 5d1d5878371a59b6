"""What this machine reaches: the rates that the formulas take, each the best of some rounds."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import xxhash

from lam_vllm.compactor import Compactor
from lam_vllm.config import CompactorConfig
from lam_vllm.encoders.base import BatchEncoder
from lam_vllm.encoders.measured import measured_pass
from lam_vllm.encoders.two_pass import encode_all, sample_windows
from lam_vllm.errors import MissingExtraError
from lam_vllm.ops.reference import l2_distances

TokenCounter = Callable[[str], int]

ROUNDS, ROUND_SECONDS = 3, 0.3
"""A rate is measured at least so often, and for so long."""
TRIAD_NUMBERS = 2**25
"""In each of three float32 arrays: 400 MB together, more than any cache holds."""
SMALLEST_MATRIX, LARGEST_MATRIX = 512, 16_384
LONG_PRODUCT_SECONDS = 0.05
HASHED_BYTES = 2**20
ENCODED_WINDOWS = 8
VERIFIED_ROWS = 1_024


def triad_rate() -> float:
    """Bytes per second of a = b + s c, read and written, on the GPU if there is one, else on all of torch's threads.

    Raises:
        MissingExtraError: torch is not installed.
    """
    torch = _torch()
    b, c, a = (torch.ones(TRIAD_NUMBERS, device=_place()) for _ in range(3))
    return float(3 * a.nbytes / best_seconds(lambda: torch.add(b, c, alpha=3.0, out=a)[0].item()))


def matrix_rate() -> float:
    """FLOP per second of matrix products in the same place: the best of float32 and bfloat16, and of growing sizes.

    Raises:
        MissingExtraError: torch is not installed.
    """
    torch = _torch()
    return max(_product_rate(dtype) for dtype in (torch.float32, torch.bfloat16))


def memory_bytes() -> float:
    """Bytes of the GPU's memory if there is one, else of this machine's."""
    torch = _torch()
    if torch.cuda.is_available():
        return float(torch.cuda.get_device_properties(0).total_memory)
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def hash_rate() -> float:
    """Bytes per second of XXH3 with 128 bits on one core, over what its cache holds, as messages are."""
    data = os.urandom(HASHED_BYTES)
    return HASHED_BYTES / best_seconds(lambda: xxhash.xxh3_128_digest(data))


def verify_rate(dimension: int) -> float:
    """Pairs of embeddings per second whose l2 distance is verified, on one core."""
    rows = np.random.default_rng(0).standard_normal((VERIFIED_ROWS, dimension)).astype(np.float32)
    return VERIFIED_ROWS / best_seconds(lambda: l2_distances(rows, rows[0]))


def exact_rate(load_counter: Callable[[], TokenCounter]) -> float:
    """Tokens per second of profile `exact` on the package's own files, one core, by a tokenizer that is freshly loaded.

    A tokenizer that has seen a text before counts it faster.
    """
    messages = [{"role": "tool", "content": text} for text in package_texts()]
    count_tokens = load_counter()
    tokens = sum(count_tokens(message["content"]) for message in messages)
    return tokens / min(_seconds(_compaction(load_counter(), messages)) for _ in range(ROUNDS))


def encoder_rate(encoder: BatchEncoder) -> tuple[float, str]:
    """Tokens per second of one thread on the package's own files, in the quickest way here, and what that way is."""
    way = measured_pass(encoder).way
    windows = sample_windows(encoder, ENCODED_WINDOWS)
    tokens = sum(len(encoder.token_offsets(text)) for text in windows)
    return tokens / min(_seconds(lambda: encode_all(encoder, way, windows)) for _ in range(ROUNDS)), way.label


def package_texts() -> list[str]:
    """The package's own modules, in the order of their paths."""
    return [path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parents[1].rglob("*.py"))]


def _product_rate(dtype: object) -> float:
    """The best of sizes that double until one product takes long."""
    torch = _torch()
    best, size, seconds = 0.0, SMALLEST_MATRIX, 0.0
    while size <= LARGEST_MATRIX and seconds < LONG_PRODUCT_SECONDS:
        one, two = (torch.ones(size, size, dtype=dtype, device=_place()) for _ in range(2))
        made = torch.empty_like(one)
        seconds = best_seconds(lambda: torch.mm(one, two, out=made)[0, 0].item())  # noqa: B023 - called at once
        best = max(best, 2 * size**3 / seconds)
        size *= 2
    return best


def _compaction(count_tokens: TokenCounter, messages: list[dict[str, str]]) -> Callable[[], object]:
    compactor = Compactor(CompactorConfig(profile="exact"), count_tokens)
    return lambda: compactor.compact(messages)


def best_seconds(work: Callable[[], object]) -> float:
    """Seconds of the quickest of some rounds, a first one to warm up not counted.

    Work on a GPU ends in reading a number of it, which waits for it.
    """
    _seconds(work)
    rounds: list[float] = []
    while len(rounds) < ROUNDS or sum(rounds) < ROUND_SECONDS:
        rounds.append(_seconds(work))
    return min(rounds)


def _seconds(work: Callable[[], object]) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began


def _place() -> str:
    return "cuda" if _torch().cuda.is_available() else "cpu"


def _torch() -> Any:
    if find_spec("torch") is None:
        raise MissingExtraError("measuring this machine", "encoder")
    import torch

    return torch
