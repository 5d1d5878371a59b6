"""Pools of an encoder on a store that they share, and an encoder that is busy until it is let go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event

from lam_vllm.encoders.pool import EncoderPool, PooledEmbeddings
from lam_vllm.encoders.two_pass import FastPass
from lam_vllm.stores import Rows
from tests.core.fake_encoders import TwoPassBag, noisy_pass
from tests.stores.conftest import Errors

KEY = b"k" * 32
WORDS = [f"window number {number} of a result" for number in range(40)]
BLOCKER = "the text that keeps the encoder busy"
FAST = noisy_pass(0.01)


class Blocked(TwoPassBag):
    """An encoder that is busy with one text until it is let go."""

    def __init__(self) -> None:
        self.entered, self.free = Event(), Event()
        super().__init__(before=self._block)

    def _block(self, texts: Sequence[str]) -> None:
        if BLOCKER in texts:
            self.entered.set()
            assert self.free.wait(30)

    @property
    def encoded(self) -> set[str]:
        return (set(self.fast) | set(self.canonical)) - {BLOCKER}


@contextmanager
def pool_with(
    rows: Rows | None, bag: TwoPassBag, errors: Errors, key: bytes = KEY, fast: FastPass = FAST
) -> Iterator[EncoderPool]:
    pool = EncoderPool(bag, fast, key=key, rows=rows, on_error=errors)
    try:
        yield pool
    finally:
        if isinstance(bag, Blocked):
            bag.free.set()
        pool.close()


def block(pool: EncoderPool, bag: Blocked) -> None:
    """Have the encoder busy, so that what is asked for next waits in its queue."""
    pool.embeddings("").prepare([BLOCKER])
    assert bag.entered.wait(30)


def all_of(embeddings: PooledEmbeddings, kind: str = "embed") -> dict[str, bytes]:
    ask = embeddings.embed if kind == "embed" else embeddings.canonical
    return {text: ask(text).tobytes() for text in WORDS}
