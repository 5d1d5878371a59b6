"""One encoder for many compactions at once: threads, a fair queue, and a memo."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from threading import Thread

import numpy as np

from lam_vllm.encoders.base import BatchEncoder, Encoded, EncoderLike
from lam_vllm.encoders.load import load_encoder
from lam_vllm.encoders.measured import measured_pass
from lam_vllm.encoders.memo import EmbeddingMemo, Kind
from lam_vllm.encoders.profile import read_profile
from lam_vllm.encoders.queue import FairQueue, Group, Waiting
from lam_vllm.encoders.two_pass import FastPass
from lam_vllm.errors import EncoderUnreachableError
from lam_vllm.types import Embedding

MEMO_BYTES = 128_000_000


class EncoderPool(EncoderLike):
    """An `Encoder` whose windows are encoded by `threads` threads of its own, each on one core, and an `Embedder`.

    `fast` says how windows are embedded until a decision is close; its band is then settled by canonical embeddings.
    """

    def __init__(self, encoder: BatchEncoder, fast: FastPass, threads: int = 1, memo_bytes: int = MEMO_BYTES) -> None:
        super().__init__(encoder)
        self.fast = fast
        self.batches = 0
        self.memo = EmbeddingMemo(memo_bytes, encoder.fingerprint, encoder.dimension)
        self._encoder = encoder
        self._queue = FairQueue(fast.way.batch)
        self._threads = [
            Thread(target=self._work, name=f"lam-encoder-{place}", daemon=True) for place in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def encode(self, text: str) -> Embedding:
        """The canonical embedding, made anew whatever is remembered; see `Encoder`."""
        future: Future[Embedding] = Future()
        self._queue.put(Group(ahead=0), "canonical", [(text, future)])  # an audit is no arriving request
        return future.result()

    def embeddings(self, salt: str) -> PooledEmbeddings:
        """For one compaction; see `Embedder`."""
        return PooledEmbeddings(self.memo, self._queue, self.fast, salt)

    def close(self) -> None:
        """End the threads after what they are doing; whoever still waits gets a RuntimeError."""
        for waiting in self._queue.close():
            waiting.future.set_exception(RuntimeError("the encoder is closed"))
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (taken := self._queue.take()) is not None:
            self._encode(*taken)
            self.batches += 1  # for a sign of life; a lost count between threads does no harm

    def _encode(self, kind: Kind, batch: Sequence[Waiting]) -> None:
        try:
            texts = [waiting.text for waiting in batch]
            if kind == "fast" and not self.fast.way.canonical:
                rows = self._encoder.encode_batch(texts, self.fast.way)
            else:
                rows = np.stack([self._encoder.encode(text) for text in texts])
        except EncoderUnreachableError as error:  # nor will the next be: all who wait now are told
            for waiting in (*batch, *self._queue.drain()):
                waiting.future.set_exception(error)
            return
        except BaseException as error:  # noqa: BLE001 - it belongs to those who wait
            if len(batch) == 1:
                batch[0].future.set_exception(error)
            else:  # to one of them perhaps: requests that share a batch do not share its failure
                for waiting in batch:
                    self._encode(kind, [waiting])
            return
        for waiting, row in zip(batch, rows, strict=True):
            waiting.future.set_result(row.copy())  # a row alone, so that nothing keeps the batch


def open_pool(name: str, threads: int) -> EncoderPool:
    """The encoder called `name`, its fast pass measured. Raises as `load_encoder`."""
    encoder, profile = load_encoder(name), read_profile(name)
    measured_here = profile.guard_band_fingerprint == encoder.fingerprint
    least_band = profile.guard_band if measured_here and profile.guard_band is not None else 0.0
    return EncoderPool(encoder, measured_pass(encoder, least_band), threads)


class PooledEmbeddings:
    """`Embeddings` of one compaction. What was asked for once is kept as long as this object."""

    def __init__(self, memo: EmbeddingMemo, queue: FairQueue, fast: FastPass, salt: str) -> None:
        self.guard_band = fast.guard_band
        self.encoded = Encoded()
        self._memo = memo
        self._queue = queue
        self._salt = salt
        self._group = Group()
        self._futures: dict[tuple[Kind, str], Future[Embedding]] = {}

    def prepare(self, texts: Sequence[str]) -> None:
        """Work on these begins; the call does not wait for it."""
        self._claim("fast", texts)

    def embed(self, text: str) -> Embedding:
        """See `Embeddings`."""
        self._claim("fast", [text])
        return self._futures["fast", text].result()

    def canonical(self, text: str) -> Embedding:
        """See `Embeddings`."""
        if not self.guard_band:
            return self.embed(text)
        self._claim("canonical", [text])
        return self._futures["canonical", text].result()

    def _claim(self, kind: Kind, texts: Sequence[str]) -> None:
        unknown = [text for text in dict.fromkeys(texts) if (kind, text) not in self._futures]
        if not unknown:
            return
        futures, new = self._memo.claim(self._salt, kind, unknown)
        self._futures.update(((kind, text), future) for text, future in zip(unknown, futures, strict=True))
        if kind == "fast":
            self.encoded.once += len(new)
            self.encoded.remembered += len(unknown) - len(new)
        else:
            self.encoded.again += len(new)
        try:
            # What somebody else waits for is queued here too: this request may have its turn sooner.
            self._queue.put(
                self._group, kind, [pair for pair in zip(unknown, futures, strict=True) if not pair[1].done()]
            )
        except RuntimeError as error:
            for place in new:
                futures[place].set_exception(error)
