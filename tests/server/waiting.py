"""Waiting for a server to get somewhere, and what its processes do meanwhile."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

WAIT_SECONDS = 60


def wait_for(condition: Callable[[], bool]) -> None:
    """Return once the condition holds; fail after a minute."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def stopped(process: int) -> Iterator[None]:
    """The process does nothing while inside, unless it was killed there."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


def is_running(process: int) -> bool:
    """Whether the process has not ended; one that only waits to be reaped has."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
