"""One at a time makes, opens or renames files in a folder."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BUSY_SECONDS = 2.0
"""How long another process is waited for."""


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """No other thread or process makes, opens or renames a store in this folder meanwhile.

    Raises:
        TimeoutError: another one does so all the time.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        until = time.monotonic() + BUSY_SECONDS
        while not _locked(handle):
            if time.monotonic() > until:
                raise TimeoutError(f"{folder} is locked by another process")
            time.sleep(0.005)
        yield
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
