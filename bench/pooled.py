"""An encoder in its pool, as it is shipped, and what its work is counted in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lam_vllm.encoders.base import BatchEncoder
from lam_vllm.encoders.pool import EncoderPool
from lam_vllm.encoders.two_pass import FastPass

_VECTOR_UNITS = r"\b(?:amx_\w+|avx2|avx512f|avx512_bf16|avx512_fp16)\b"


@contextmanager
def pool_of(encoder: BatchEncoder, fast: FastPass, threads: int) -> Iterator[EncoderPool]:
    """A pool whose threads have their copies of the model, closed at the end."""
    pool = EncoderPool(encoder, fast, threads)
    try:
        encode_at_once(pool, [[f"warm {number}"] for number in range(4 * threads)], "warm")
        yield pool
    finally:
        pool.close()


def encode_at_once(pool: EncoderPool, requests: Sequence[Sequence[str]], salt: str) -> None:
    """The windows of all these requests, each request under its own salt, so that none knows another's."""
    asking = [pool.embeddings(f"{salt} {number}") for number in range(len(requests))]
    for embeddings, texts in zip(asking, requests, strict=True):
        embeddings.prepare(texts)
    for embeddings, texts in zip(asking, requests, strict=True):
        for text in texts:
            embeddings.embed(text)


def tokens_of(encoder: BatchEncoder, texts: Sequence[str]) -> int:
    """Tokens of these texts as the encoder counts them."""
    return sum(len(encoder.token_offsets(text)) for text in texts)


def vector_units() -> list[str]:
    """The CPU flags that decide how fast an encoder is; none where the system does not tell."""
    cpuinfo = Path("/proc/cpuinfo")
    return sorted(set(re.findall(_VECTOR_UNITS, cpuinfo.read_text()))) if cpuinfo.exists() else []
