"""The server's end: starts the worker process, hands it jobs, and starts it again when it dies."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from itertools import count
from multiprocessing.connection import Connection
from threading import Condition, Lock, Thread
from typing import TypeAlias, cast

from lam_vllm.errors import EncoderError, WorkerLostError
from lam_vllm.worker.jobs import Compacted, EncoderFacts, Failure, Held, Job, Setup, Warmed

logger = logging.getLogger(__name__)

Answer: TypeAlias = Compacted | Warmed
_Pipe: TypeAlias = "Connection[object, object]"
_Said: TypeAlias = tuple[int, Compacted | Warmed | Failure, Held]

RESTART_SECONDS = 60.0
"""How long a request waits for a worker that is being started again."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
"""Pauses between starts that fail, doubled each time."""
_LIBRARIES = ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "RAYON")
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in _LIBRARIES}
"""Every thread of the encoder is one core: the libraries below it start none of their own."""


class WorkerClient:
    """One worker process. Safe to use from several threads.

    `restarts` counts how often it was started again, `held` says what its memos held at its last answer.
    """

    def __init__(self, setup: Setup, on_restart: Callable[[], object] = lambda: None) -> None:
        self.restarts = 0
        self.held = Held()
        self._setup = setup
        self._on_restart = on_restart
        self._numbers = count()
        self._waiting: dict[int, Future[Answer]] = {}
        self._sending = Lock()
        self._changed = Condition()
        self._pipe: _Pipe | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._failing = False
        self._closed = False
        self.facts = self._start()
        Thread(target=self._watch, name="lam-worker-answers", daemon=True).start()

    def submit(self, job: Job) -> Future[Answer]:
        """The answer to come. Blocks while the worker is being started again, at most `RESTART_SECONDS`.

        The future raises WorkerLostError when the worker died over it or cannot be had, EncoderError when the encoder
        failed, RuntimeError for any other failure in the worker.
        """
        future: Future[Answer] = Future()
        with self._changed:
            self._changed.wait_for(lambda: self._pipe or self._failing or self._closed, RESTART_SECONDS)
            pipe, number = self._pipe, next(self._numbers)
            if pipe is None:
                future.set_exception(WorkerLostError("the worker process is not running"))
                return future
            self._waiting[number] = future
        try:
            with self._sending:
                pipe.send((number, job))
        except OSError:  # it has just died
            self._fail([number])
        except BaseException:
            self._waiting.pop(number, None)
            raise
        return future

    def close(self) -> None:
        """End the worker; whoever waits gets a WorkerLostError."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def _start(self) -> EncoderFacts:
        """Start the process and wait until its encoder is loaded.

        Raises:
            EncoderError: it says that it cannot, or it ended.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "lam_vllm.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**os.environ, **ONE_THREAD, "TOKENIZERS_PARALLELISM": "false"},
                stdin=subprocess.DEVNULL,
            )
        pipe: _Pipe = Connection(ours.detach())
        try:
            pipe.send(self._setup)
            said = pipe.recv()
        except (EOFError, OSError):
            said = Failure("", f"the worker process ended with code {self._process.wait()}")
        if isinstance(said, Failure):
            pipe.close()
            self._process.wait()
            raise EncoderError(said.message)
        assert isinstance(said, EncoderFacts)
        with self._changed:
            self._pipe, self._failing = pipe, False
            self._changed.notify_all()
        return said

    def _watch(self) -> None:
        """Hand out answers; when the worker is gone, fail what waits and start it again."""
        while not self._closed:
            self._hand_out()
            with self._changed:
                pipe, self._pipe = self._pipe, None
            if pipe is not None:
                pipe.close()
            if self._process is not None:
                self._process.wait()
            self._fail(list(self._waiting))
            if not self._closed:
                self._restart()

    def _hand_out(self) -> None:
        pipe = self._pipe
        while pipe is not None:
            try:
                number, answer, self.held = cast("_Said", pipe.recv())
            except (EOFError, OSError):
                return
            future = self._waiting.pop(number, None)
            if future is None:
                continue
            if isinstance(answer, Failure):
                future.set_exception(_error(answer))
            else:
                future.set_result(answer)

    def _restart(self) -> None:
        logger.error("lam: the worker process ended; it is started again")
        self.restarts += 1
        self._on_restart()
        pause = FIRST_PAUSE_SECONDS
        while not self._closed:
            try:
                self.facts = self._start()
            except (EncoderError, OSError) as error:
                logger.error("lam: the worker process does not start: %s", error)
            else:
                return
            with self._changed:
                self._failing = True
                self._changed.notify_all()
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _fail(self, numbers: list[int]) -> None:
        for number in numbers:
            future = self._waiting.pop(number, None)
            if future is not None:
                future.set_exception(WorkerLostError("the worker process ended over this request"))


def _error(failure: Failure) -> Exception:
    if failure.error == EncoderError.__name__:
        return EncoderError(failure.message)
    return RuntimeError(f"{failure.error}: {failure.message}")
