"""One encoder for many compactions at once: threads, a fair queue, and a memo."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from threading import Thread, get_ident

from lam_vllm.encoders.base import BatchEncoder, Encoded, EncoderLike
from lam_vllm.encoders.device import Wanted
from lam_vllm.encoders.load import load_encoder
from lam_vllm.encoders.measured import measured_pass
from lam_vllm.encoders.memo import Answer, EmbeddingMemo, Kind
from lam_vllm.encoders.profile import read_profile
from lam_vllm.encoders.queue import FairQueue, Group, Waiting
from lam_vllm.encoders.shared import SharedEmbeddings
from lam_vllm.encoders.two_pass import FastPass
from lam_vllm.errors import EncoderUnreachableError
from lam_vllm.ops.arrays import Arrays
from lam_vllm.stores import OnError, Rows, StoreSettings, open_rows
from lam_vllm.types import Embedding

MEMO_BYTES = 128_000_000


class EncoderPool(EncoderLike):
    """An `Encoder` whose windows are encoded by `threads` threads of its own, each on one core, and an `Embedder`.

    `fast` says how windows are embedded until a decision is close; its band is then settled by canonical embeddings.
    With `rows`, whose keys are hashes under `key`, embeddings are shared with whoever has both.
    """

    def __init__(
        self,
        encoder: BatchEncoder,
        fast: FastPass,
        threads: int = 1,
        memo_bytes: int = MEMO_BYTES,
        *,
        key: bytes = b"",
        rows: Rows | None = None,
        on_error: OnError = lambda _errors: None,
    ) -> None:
        super().__init__(encoder)
        self.fast = fast
        self.traits = replace(self.traits, embedding_error=fast.embedding_error)
        self.batches = 0
        way = f"{fast.way.precision}, batches of {fast.way.batch}: {fast.way.label}"
        self.memo = EmbeddingMemo(memo_bytes, encoder.fingerprint, encoder.dimension, key=key, way=way)
        self._encoder = encoder
        self._queue = FairQueue(fast.way.batch)
        self._shared = SharedEmbeddings(rows, self._queue, encoder.dimension, on_error) if rows is not None else None
        self._began: dict[int, float] = {}  # when each thread began with the batch that it has in hand
        self._threads = [
            Thread(target=self._work, name=f"lam-encoder-{place}", daemon=True) for place in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def shared_bytes(self) -> int:
        """Bytes of embeddings in the store that is shared, as far as they are known."""
        return self._shared.nbytes if self._shared is not None else 0

    @property
    def batch_seconds(self) -> float:
        """How long the batch that is in hand longest has been: an encoder that hangs never ends its batch."""
        now = time.monotonic()
        return max((now - began for began in list(self._began.values())), default=0.0)

    def encode(self, text: str) -> Embedding:
        """The canonical embedding, made anew whatever is remembered; see `Encoder`."""
        future = Answer()
        self._queue.put(Group(ahead=0), "canonical", [(text, future)])  # an audit is no arriving request
        return future.result()

    def embeddings(self, salt: str, *, canonical_only: bool = False, background: bool = False) -> PooledEmbeddings:
        """For one compaction; see `Embedder`."""
        band = 0.0 if canonical_only else self.fast.guard_band
        # Without a band the fast way is the canonical one, and both ways of asking share what is remembered.
        first: Kind = "canonical" if canonical_only and self.fast.guard_band else "fast"
        group = Group(background=background)
        return PooledEmbeddings(self.memo, self._queue, salt, band, first, self.traits.arrays, self._shared, group)

    def close(self) -> None:
        """End the threads after what they are doing; whoever still waits gets a RuntimeError."""
        self._queue.fail(_futures(self._queue.close()), RuntimeError("the encoder is closed"))
        for thread in self._threads:
            thread.join()
        if self._shared is not None:
            self._shared.close()

    def _work(self) -> None:
        while (taken := self._queue.take()) is not None:
            self._began[get_ident()] = time.monotonic()
            self._encode(*taken)
            del self._began[get_ident()]
            self.batches += 1  # for a sign of life; a lost count between threads does no harm

    def _encode(self, kind: Kind, batch: Sequence[Waiting]) -> None:
        try:
            rows = self._rows(kind, [waiting.text for waiting in batch])
        except EncoderUnreachableError as error:  # nor will the next be: all who wait now are told
            self._queue.fail(_futures([*batch, *self._queue.drain()]), error)
            return
        except BaseException as error:  # noqa: BLE001 - it belongs to those who wait
            if len(batch) == 1:
                self._queue.fail(_futures(batch), error)
            else:  # to one of them perhaps: requests that share a batch do not share its failure
                for waiting in batch:
                    self._encode(kind, [waiting])
            return
        self._give(batch, rows)

    def _rows(self, kind: Kind, texts: Sequence[str]) -> list[Embedding]:
        """An embedding for each text, alone, so that nothing keeps the batch."""
        if kind == "fast" and not self.fast.way.canonical:
            made = self._encoder.encode_batch(texts, self.fast.way)
            return [self.traits.arrays.alone(made, place) for place in range(len(made))]
        return [self._encoder.encode(text) for text in texts]

    def _give(self, batch: Sequence[Waiting], rows: Sequence[Embedding]) -> None:
        made = []
        for waiting, row in zip(batch, rows, strict=True):
            future = waiting.future
            first = self._queue.fulfil(future, row)
            if first and isinstance(future, Answer) and future.key:
                made.append(future)
        if self._shared is not None and made:
            self._shared.keep(made)


def open_pool(
    name: str,
    threads: int,
    *,
    memo_bytes: int = MEMO_BYTES,
    store: StoreSettings | None = None,
    key: bytes = b"",
    on_error: OnError = lambda _errors: None,
    device: Wanted = "cpu",
) -> EncoderPool:
    """The encoder called `name`, its fast pass measured, with the embeddings of a store that is not this memory.

    `device` is where it runs; see `choose_device`.

    Raises:
        as `load_encoder` and `open_rows`.
    """
    encoder, profile = load_encoder(name, device=device), read_profile(name)
    measured_here = profile.guard_band_fingerprint == encoder.fingerprint
    least_band = profile.guard_band if measured_here and profile.guard_band is not None else 0.0
    rows = open_rows(store, "embeddings", key, on_error) if store is not None and store.url is not None else None
    fast = measured_pass(encoder, least_band)
    return EncoderPool(encoder, fast, threads, memo_bytes, key=key, rows=rows, on_error=on_error)


def _futures(waiting: Sequence[Waiting]) -> list[Future[Embedding]]:
    return [each.future for each in waiting]


class PooledEmbeddings:
    """`Embeddings` of one compaction. What was asked for once is kept as long as this object.

    `first` is the kind that `embed` gives.
    """

    def __init__(
        self,
        memo: EmbeddingMemo,
        queue: FairQueue,
        salt: str,
        guard_band: float,
        first: Kind,
        arrays: Arrays,
        shared: SharedEmbeddings | None = None,
        group: Group | None = None,
    ) -> None:
        self.guard_band = guard_band
        self.arrays = arrays
        self.encoded = Encoded()
        self._first = first
        self._memo = memo
        self._queue = queue
        self._shared = shared
        self._salt = salt
        self._group = group or Group()
        self._futures: dict[tuple[Kind, str], Answer] = {}
        self._new: set[Answer] = set()  # counted as encoded, until it is known that they were not

    def prepare(self, texts: Sequence[str]) -> None:
        """Work on these begins; the call does not wait for it."""
        self._claim(self._first, texts)

    def embed(self, text: str) -> Embedding:
        """See `Embeddings`."""
        self._claim(self._first, [text])
        return self._result(self._first, text)

    def canonical(self, text: str) -> Embedding:
        """See `Embeddings`."""
        if not self.guard_band:
            return self.embed(text)
        self._claim("canonical", [text])
        return self._result("canonical", text)

    def _result(self, kind: Kind, text: str) -> Embedding:
        answer = self._futures[kind, text]
        embedding = answer.result()
        if answer.spared and answer in self._new:
            self._new.remove(answer)
            if kind == self._first:
                self.encoded.once -= 1
                self.encoded.remembered += 1
            else:
                self.encoded.again -= 1
        return embedding

    def _claim(self, kind: Kind, texts: Sequence[str]) -> None:
        unknown = [text for text in dict.fromkeys(texts) if (kind, text) not in self._futures]
        if not unknown:
            return
        futures, new = self._memo.claim(self._salt, kind, unknown)
        self._futures.update(((kind, text), future) for text, future in zip(unknown, futures, strict=True))
        if kind == self._first:
            self.encoded.once += len(new)
            self.encoded.remembered += len(unknown) - len(new)
        else:
            self.encoded.again += len(new)
        if self._shared is not None:
            self._new.update(futures[place] for place in new)
            self._shared.ask(futures[place] for place in new)
        try:
            # What somebody else waits for is queued here too: this request may have its turn sooner.
            self._queue.put(
                self._group, kind, [pair for pair in zip(unknown, futures, strict=True) if not pair[1].done()]
            )
        except RuntimeError as error:
            self._queue.fail([futures[place] for place in new], error)
