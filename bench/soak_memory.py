"""Resident memory of a server over a run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock

from vllm_server import ServerProcess

SETTLED, END = 20, 100
"""Percent of the run: what is there at the first is what the server needs, growth is counted from it to the second."""


class MemoryWatch:
    """Resident bytes of every process of a server, at every percent of the work that was done. Safe between threads."""

    def __init__(self, server: ServerProcess, work: int) -> None:
        self.by_process: dict[int, dict[str, int]] = {0: resident_bytes(server.process_ids)}
        self._server = server
        self._work = work
        self._done = 0
        self._lock = Lock()

    def one_more(self) -> None:
        """A piece of the work is done."""
        with self._lock:
            self._done += 1
            percent = 100 * self._done // self._work
            if percent not in self.by_process:
                self.by_process[percent] = resident_bytes(self._server.process_ids)

    @property
    def bytes_at(self) -> dict[int, int]:
        """All processes together, by percent."""
        return {percent: sum(held.values()) for percent, held in sorted(self.by_process.items())}

    @property
    def growth(self) -> float:
        """By which share of what it was when the run had settled the memory has grown at its end."""
        held = self.bytes_at
        return held[END] / held[SETTLED] - 1


def resident_bytes(processes: Sequence[int]) -> dict[str, int]:
    """What each of these processes holds in memory, by name and number; what they share is counted for each."""
    held = {}
    for process in processes:
        with suppress(OSError):  # it has ended
            folder = Path(f"/proc/{process}")
            pages = int((folder / "statm").read_text().split()[1])
            held[f"{(folder / 'comm').read_text().strip()} {process}"] = pages * os.sysconf("SC_PAGE_SIZE")
    return held
