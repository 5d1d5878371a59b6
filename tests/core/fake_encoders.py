"""A stand-in at the seam of `BatchEncoder`: two passes in microseconds. Calls are counted and may be made to fail."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from threading import Lock, current_thread

import numpy as np

from lam_vllm.encoders.base import Pass
from lam_vllm.encoders.two_pass import FastPass
from lam_vllm.types import Embedding
from tests.core.chats import BagOfWords


def nothing(_texts: Sequence[str]) -> None:
    """Let every call pass."""


class TwoPassBag(BagOfWords):
    """Bags of words, and a fast pass whose rows lie `noise` (l2) away, in a direction that the whole batch decides.

    With `together` all rows move the same way, so that windows seem nearer to one another than they are.
    `before` sees the texts of every call first, and may raise. `fast` and `canonical` count what was encoded, `batches`
    keeps the sizes of fast calls, `threads` names who called.
    """

    def __init__(
        self, noise: float = 0.01, before: Callable[[Sequence[str]], None] = nothing, *, together: bool = False
    ) -> None:
        super().__init__()
        self.noise = noise
        self.together = together
        self.before = before
        self.fast: Counter[str] = Counter()
        self.canonical: Counter[str] = Counter()
        self.batches: list[int] = []
        self.threads: set[str] = set()
        self._lock = Lock()

    def encode(self, text: str) -> Embedding:
        self.before([text])
        with self._lock:
            self.canonical[text] += 1
            self.threads.add(current_thread().name)
        return super().encode(text)

    def passes(self) -> Sequence[Pass]:
        return [Pass("alone", "exact", 1, canonical=True), Pass("noisy, batches of 4", "noisy", 4)]

    def encode_batch(self, texts: Sequence[str], way: Pass) -> Embedding:
        self.before(texts)
        with self._lock:
            self.fast.update(texts)
            self.batches.append(len(texts))
            self.threads.add(current_thread().name)
        return np.stack([self.noisy(text, "\0".join(texts)) for text in texts])

    def noisy(self, text: str, batch: str) -> Embedding:
        """The fast row of a text that is encoded in this batch."""
        decides = "" if self.together else f"{text}\0{batch}"
        seed = hashlib.blake2b(decides.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        step = np.random.default_rng(int.from_bytes(seed, "little")).standard_normal(self.dimension)
        row = BagOfWords.encode(self, text) + self.noise * step / np.linalg.norm(step)
        return (row / np.linalg.norm(row)).astype(np.float32)


def noisy_pass(noise: float, batch: int = 4) -> FastPass:
    """The fast pass of `TwoPassBag(noise)`, its band and its error proved: |a'b' - ab| <= |a' - a| + |b' - b|, and
    scaling a row back to unit length moves it by no more than the noise did."""
    way = Pass(f"noisy, batches of {batch}", "noisy", batch)
    return FastPass(way, 4 * noise + 1e-4, {way.label: 1.0}, "made", 2 * noise + 1e-6)
