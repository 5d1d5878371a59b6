"""The server's end: starts the worker process, hands it jobs, and starts it again when it dies."""

from __future__ import annotations

import logging
import os
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from itertools import count
from multiprocessing.connection import Connection
from threading import Condition, Lock, Thread
from typing import TypeAlias, cast

from lam_vllm.errors import EncoderError, EncoderUnreachableError, WorkerLostError
from lam_vllm.stores import OnError, StoreError
from lam_vllm.worker.jobs import HEARTBEAT_SECONDS, Answer, EncoderFacts, Failure, Held, Job, Setup

logger = logging.getLogger(__name__)

_Pipe: TypeAlias = "Connection[object, object]"
_Said: TypeAlias = tuple[int | None, Answer | Failure | None, Held]

RESTART_SECONDS = 60.0
"""How long a request waits for a worker that is being started again."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
"""Pauses between starts that fail, doubled each time."""
_LIBRARIES = ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "RAYON")
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in _LIBRARIES}
"""Every thread of the encoder is one core: the libraries below it start none of their own."""
START_SECONDS = 1_800.0
"""How long a worker may take to load its encoder: it may have to fetch it."""
CLOSE_SECONDS = 5.0
"""How long a worker that is to end may take over what waits to be written."""
SILENT_SECONDS, STUCK_SECONDS = 60.0, 300.0
"""A worker that gives no sign of life so long, or has a batch in hand or jobs waiting and ends none, is ended."""


class WorkerClient:
    """One worker process. Safe to use from several threads.

    `restarts` counts how often it was started again, `held` says what its memos held at its last answer, and
    `on_store_error` is told how much its store of embeddings has lost since it was last told, and `on_index_error` how
    much was lost of indexes.
    """

    def __init__(
        self,
        setup: Setup,
        on_restart: Callable[[], object] = lambda: None,
        on_store_error: OnError = lambda _errors: None,
        on_index_error: OnError = lambda _errors: None,
        stuck_seconds: float = STUCK_SECONDS,
    ) -> None:
        self.restarts = 0
        self.held = Held()
        self._setup = setup
        self._on_restart = on_restart
        self._on_store_error = on_store_error
        self._on_index_error = on_index_error
        self._stuck = stuck_seconds
        self._numbers = count()
        self._waiting: dict[int, Future[Answer]] = {}
        self._waiting_since = 0.0
        self._sending = Lock()
        self._changed = Condition()
        self._pipe: _Pipe | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._failing = False
        self._closed = False
        self._down_since = 0.0
        self.facts = self._start()
        self._watching = Thread(target=self._watch, name="lam-worker-answers", daemon=True)
        self._watching.start()

    def submit(self, job: Job) -> Future[Answer]:
        """The answer to come. Blocks while the worker is being started again, at most `RESTART_SECONDS`.

        The future raises WorkerLostError when the worker died over it or cannot be had, EncoderError when the encoder
        failed, StoreError when the store did where that is no use to anybody, RuntimeError for any other failure.
        """
        future: Future[Answer] = Future()
        with self._changed:
            patience = self._down_since + RESTART_SECONDS - time.monotonic()
            self._changed.wait_for(lambda: self._pipe or self._failing or self._closed, max(0.0, patience))
            pipe, number = self._pipe, next(self._numbers)
            if pipe is None:
                future.set_exception(WorkerLostError("the worker process is not running"))
                return future
            if not self._waiting:
                self._waiting_since = time.monotonic()
            self._waiting[number] = future
        try:
            pickled = pickle.dumps(job)  # apart: a job that cannot be read is still a job with a number
            with self._sending:
                pipe.send((number, pickled))
        except OSError:  # it has just died
            self._fail([number])
        except BaseException:
            self._waiting.pop(number, None)
            raise
        return future

    def close(self) -> None:
        """End the worker, or its being started again; whoever waits gets a WorkerLostError.

        It is given `CLOSE_SECONDS` to write what it has not written yet.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            if self._process is not None:
                self._process.terminate()
        self._watching.join(CLOSE_SECONDS)
        if self._process is not None:
            self._process.kill()
        self._watching.join()

    def _start(self) -> EncoderFacts:
        """Start the process and wait until its encoder is loaded.

        Raises:
            EncoderError: it says that it cannot, or it ended.
        """
        process, pipe = self._spawn()
        try:
            pipe.send(self._setup)
            if not pipe.poll(START_SECONDS):
                process.kill()
            said = pipe.recv()
        except (EOFError, OSError):
            said = Failure("", f"the worker process ended with code {process.wait()}")
        if isinstance(said, Failure):
            pipe.close()
            process.wait()
            raise EncoderError(said.message)
        assert isinstance(said, EncoderFacts)
        # A worker that is started again makes the same embeddings: a GPU's memory may not be free yet.
        self._setup = replace(self._setup, device=said.device, device_reason=said.device_reason)
        with self._changed:
            self._pipe, self._failing = pipe, False
            self._changed.notify_all()
        return said

    def _spawn(self) -> tuple[subprocess.Popen[bytes], _Pipe]:
        ours, theirs = socket.socketpair()
        with ours, theirs, self._changed:
            if self._closed:  # looked at under the lock, so that `close` sees every process that is started
                raise EncoderError("the worker is closed")
            self._process = subprocess.Popen(
                # -P: a server may be started in a folder whose files are named like a library's.
                [sys.executable, "-P", "-m", "lam_vllm.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=worker_environment(os.environ),
                stdin=subprocess.DEVNULL,
            )
            return self._process, Connection(ours.detach())

    def _watch(self) -> None:
        """Hand out answers; when the worker is gone, fail what waits and start it again, until closed."""
        while True:
            if self._pipe is not None:
                self._hand_out(self._pipe)
            with self._changed:
                pipe, self._pipe, self._down_since = self._pipe, None, time.monotonic()
            if pipe is not None:
                with self._sending:  # a descriptor that is closed under a sender may be another file's by then
                    pipe.close()
            if self._process is not None:
                ended = self._process.poll()
                self._process.kill()  # without its pipe it is of no use, should it still run
                self._process.wait()
                logger.log(logging.DEBUG if self._closed else logging.ERROR, "lam: the worker's exit code: %s", ended)
            self._fail(list(self._waiting))
            if self._closed:  # looked at last: what came in while it was closing has been failed too
                return
            self._restart()

    def _hand_out(self, pipe: _Pipe) -> None:
        """Hand out answers until the worker is gone, or as good as gone."""
        self.held, moved = Held(), time.monotonic()
        silent = min(SILENT_SECONDS, max(self._stuck, 3 * HEARTBEAT_SECONDS))
        while not self._stands_still(moved):
            try:
                if not pipe.poll(silent):
                    break
                number, answer, held = cast("_Said", pipe.recv())
            except (EOFError, OSError):
                return
            except Exception:
                logger.exception("lam: an answer of the worker process cannot be read")
                return
            if number is not None or held.batches != self.held.batches:
                moved = time.monotonic()
            self._tell(self.held, held)
            self.held = held
            if number is not None:
                self._hand(number, answer)
        logger.error("lam: the worker process does not move; it is ended")

    def _tell(self, before: Held, now: Held) -> None:
        """Pass on what was lost between two answers."""
        if now.store_errors > before.store_errors:
            self._on_store_error(now.store_errors - before.store_errors)
        if now.index_errors > before.index_errors:
            self._on_index_error(now.index_errors - before.index_errors)

    def _stands_still(self, moved: float) -> bool:
        """Whether the worker has ended nothing since `moved` although something waits, or its batch does not end."""
        since = time.monotonic() - max(moved, self._waiting_since)
        return (bool(self._waiting) and since >= self._stuck) or self.held.batch_seconds >= self._stuck

    def _hand(self, number: int, answer: Answer | Failure | None) -> None:
        future = self._waiting.pop(number, None)
        if future is None or answer is None:
            return
        if isinstance(answer, Failure):
            future.set_exception(_error(answer))
        else:
            future.set_result(answer)

    def _restart(self) -> None:
        logger.error("lam: the worker process ended; it is started again")
        self.restarts += 1
        self._on_restart()
        for pause in restart_pauses():
            try:
                self.facts = self._start()
            except Exception as error:  # noqa: BLE001 - whatever it is, the next try comes
                logger.error("lam: the worker process does not start: %s", error)
            else:
                return
            with self._changed:
                self._failing = True
                self._changed.notify_all()
                if self._changed.wait_for(lambda: self._closed, pause):
                    return

    def _fail(self, numbers: list[int]) -> None:
        for number in numbers:
            future = self._waiting.pop(number, None)
            if future is not None:
                future.set_exception(WorkerLostError("the worker process ended over this request"))


def worker_environment(own: Mapping[str, str]) -> dict[str, str]:
    """The environment of a worker: nothing in it may start threads below the encoder's or loosen its products."""
    kept = {name: value for name, value in own.items() if name != "ONEDNN_DEFAULT_FPMATH_MODE"}
    return {**kept, **ONE_THREAD, "TOKENIZERS_PARALLELISM": "false", "TQDM_DISABLE": "1"}


def restart_pauses() -> Iterator[float]:
    """Seconds to wait after each start that failed."""
    pause = FIRST_PAUSE_SECONDS
    while True:
        yield pause
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def _error(failure: Failure) -> Exception:
    if failure.error in (EncoderError.__name__, EncoderUnreachableError.__name__):
        return EncoderError(failure.message)
    if failure.error == StoreError.__name__:
        return StoreError(failure.message)
    return RuntimeError(f"{failure.error}: {failure.message}")
