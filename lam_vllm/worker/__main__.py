"""The worker process: python -m lam_vllm.worker FILE_DESCRIPTOR, started by `worker.client` alone."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from threading import Lock, Thread
from time import sleep
from typing import NoReturn, cast

from lam_vllm.compactors import Compactors
from lam_vllm.encoders.pool import EncoderPool, open_pool
from lam_vllm.errors import LamError
from lam_vllm.messages import changed_texts
from lam_vllm.pool import THREADS
from lam_vllm.tokens import portable_token_counter
from lam_vllm.types import Work
from lam_vllm.worker.indexing import find, open_indexer
from lam_vllm.worker.jobs import (
    HEARTBEAT_SECONDS,
    Answer,
    Compact,
    Compacted,
    EncoderFacts,
    Failure,
    Forget,
    Forgotten,
    Held,
    Job,
    Search,
    Searched,
    Setup,
    Warm,
    Warmed,
)

logger = logging.getLogger(__name__)

JOBS = sum(THREADS.values()) - THREADS["exact"]
"""As many at once as threads of the server wait for: a deletion never waits for compactions."""


def main() -> None:
    """Serve the other end of the connection until it is closed."""
    logging.basicConfig(level=logging.WARNING, format="lam worker: %(levelname)s %(message)s")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the server too, which then closes its end
    connection: Connection[object, object] = Connection(int(sys.argv[1]))
    setup = connection.recv()
    assert isinstance(setup, Setup)
    try:
        if setup.cpus is not None:
            os.sched_setaffinity(0, setup.cpus)
        worker = Worker(setup, connection)
    except (LamError, OSError) as error:
        with suppress(OSError):  # the server may have gone meanwhile
            connection.send(Failure(type(error).__name__, str(error)))
        return
    worker.serve()


class Count:
    """A sum to which several threads add."""

    def __init__(self) -> None:
        self.total = 0
        self._lock = Lock()

    def add(self, more: int) -> None:
        """Add so many."""
        with self._lock:
            self.total += more


class Worker:
    """The encoder, the compactors, the indexes, and the threads in which requests wait for them."""

    def __init__(self, setup: Setup, connection: Connection[object, object]) -> None:
        self._store_errors, self._index_errors = Count(), Count()
        self._pool = open_pool(
            setup.encoder,
            setup.threads,
            memo_bytes=setup.memo_bytes,
            store=setup.store,
            key=setup.key,
            on_error=self._store_errors.add,
            device=setup.device,
        )
        self._indexer = open_indexer(setup, self._pool, self._index_errors.add)
        self._compactors = Compactors(
            portable_token_counter(setup.tokenizer), self._pool, setup.tokenizer_name, setup.memo_bytes
        )
        self._connection = connection
        self._sending = Lock()
        self._failures_seen: set[type[BaseException]] = set()
        Thread(target=self._beat, name="lam-heartbeat", daemon=True).start()
        connection.send(_facts(self._pool, setup))

    def serve(self) -> None:
        """Take jobs until the server is gone, or ends this process; what is under way then is of no use to anybody."""
        signal.signal(signal.SIGTERM, lambda *_: self._end())
        threads = ThreadPoolExecutor(JOBS, thread_name_prefix="lam-compactor")
        while True:
            try:
                number, job = cast("tuple[int, bytes]", self._connection.recv())
            except (EOFError, OSError):
                self._end()
            threads.submit(self._answer, number, job)

    def _end(self) -> NoReturn:
        """Write the indexes that wait, if that is soon done."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._indexer.close()
        os._exit(0)

    def _beat(self) -> None:
        while True:
            sleep(HEARTBEAT_SECONDS)
            self._send(None, None)

    def _answer(self, number: int, pickled: bytes) -> None:
        answer: object
        try:
            answer = self._do(pickle.loads(pickled))
        except BaseException as error:  # noqa: BLE001 - it belongs to the request; a tokenizer's panic is no Exception
            self._log(error)
            answer = Failure(type(error).__name__, str(error))
        self._send(number, answer)

    def _log(self, error: BaseException) -> None:
        """One traceback per kind of failure: the server knows no more of it than its name and its message."""
        seen = type(error) in self._failures_seen
        self._failures_seen.add(type(error))
        logger.log(logging.DEBUG if seen else logging.ERROR, "a job failed", exc_info=error)

    def _send(self, number: int | None, answer: object) -> None:
        try:
            with self._sending:
                self._connection.send((number, answer, self._held()))
        except BaseException:  # an answer that is lost would be waited for
            logger.exception("an answer cannot be sent")
            os._exit(1)

    def _held(self) -> Held:
        pool = self._pool
        return Held(
            self._compactors.memo_bytes_used,
            pool.memo.nbytes,
            pool.batches,
            pool.batch_seconds,
            pool.shared_bytes,
            self._store_errors.total,
            self._indexer.nbytes,
            self._index_errors.total,
        )

    def _do(self, job: Job) -> Answer:
        if isinstance(job, Compact):
            return self._compact(job)
        if isinstance(job, Search):
            return Searched(find(job, self._compactors, self._indexer, self._pool))
        if isinstance(job, Forget):
            self._indexer.forget(job.salt)
            return Forgotten()
        return self._warm(job)

    def _compact(self, job: Compact) -> Compacted:
        compaction = self._compactors.get(job.config).compact(
            job.messages,
            salt=job.salt,
            use_memo=job.use_memo,
            canonical=job.canonical,
            keep=partial(self._indexer.put, job.salt) if job.index else None,
        )
        return Compacted(changed_texts(job.messages, compaction.messages), compaction.decisions, compaction.report)

    def _warm(self, job: Warm) -> Warmed:
        compactor, work = self._compactors.get(job.config), Work()
        if job.messages is not None:
            work = compactor.warm(job.messages, salt=job.salt)
        elif job.text is not None:
            work = compactor.warm_text(job.text, salt=job.salt)
        return Warmed(work)


def _facts(pool: EncoderPool, setup: Setup) -> EncoderFacts:
    return EncoderFacts(
        pool.name,
        pool.fingerprint,
        pool.dimension,
        pool.window_tokens,
        pool.threshold_cos,
        pool.fast,
        setup.threads,
        os.getpid(),
        pool.traits.basis,
        pool.traits.device.kind,
        setup.device_reason or pool.traits.device.reason,
    )


if __name__ == "__main__":
    main()
