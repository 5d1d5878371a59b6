"""Embeddings that other processes have made: asked for beside the encoder's queue, and never waited for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from threading import Condition, Thread

import numpy as np

from lam_vllm.encoders.memo import Answer
from lam_vllm.encoders.queue import FairQueue
from lam_vllm.encoders.unit import NORM_TOLERANCE
from lam_vllm.stores import OnError, Row, Rows, StoreError
from lam_vllm.types import Embedding

ASKED_AT_ONCE = 256
MAX_ASKED = 20_000
"""Windows past so many are left to the encoder: the store is too slow to be of use."""
_FORM = np.dtype("<f4")


class SharedEmbeddings:
    """The embeddings in `rows`, which take new ones without waiting. A thread of its own asks for those that are there.

    What it finds fulfils an answer, if the encoder has not done so before; what it does not find, the encoder will.
    """

    def __init__(self, rows: Rows, queue: FairQueue, dimension: int, on_error: OnError) -> None:
        self._rows = rows
        self._queue = queue
        self._dimension = dimension
        self._on_error = on_error
        self._asked: deque[Answer] = deque()
        self._changed = Condition()
        self._closed = False
        self._thread = Thread(target=self._work, name="lam-shared-embeddings", daemon=True)
        self._thread.start()

    @property
    def nbytes(self) -> int:
        """Bytes kept in the store, as far as they are known."""
        return self._rows.nbytes

    def ask(self, answers: Iterable[Answer]) -> None:
        """Look for these, soon; the call does not wait for it."""
        with self._changed:
            if len(self._asked) < MAX_ASKED:
                self._asked.extend(answers)
            self._changed.notify_all()

    def keep(self, answers: Iterable[Answer]) -> None:
        """Let other processes find these, which are fulfilled."""
        self._rows.put_many([Row(each.key, each.group, each.result().astype(_FORM).tobytes()) for each in answers])

    def close(self) -> None:
        """End the thread and let go of the store."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        self._rows.close()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asked or self._closed)
                if self._closed:
                    return
                some = [self._asked.popleft() for _ in range(min(len(self._asked), ASKED_AT_ONCE))]
            self._look_for([answer for answer in some if not answer.done()])

    def _look_for(self, answers: list[Answer]) -> None:
        if not answers:
            return
        try:
            values = self._rows.get_many([each.key for each in answers])
        except StoreError:  # counted where it happened
            return
        for answer, value in zip(answers, values, strict=True):
            embedding = None if value is None else self._read(value)
            if embedding is not None:
                self._queue.spare(answer, embedding)

    def _read(self, value: bytes) -> Embedding | None:
        """The embedding that these bytes are; None, and an error counted, where they are none."""
        if len(value) == _FORM.itemsize * self._dimension:
            embedding = np.frombuffer(value, _FORM).astype(np.float32)
            norm = float(np.linalg.norm(embedding.astype(np.float64)))
            if abs(norm - 1.0) <= NORM_TOLERANCE:  # false for what is not finite
                return embedding
        self._on_error(1)
        return None
