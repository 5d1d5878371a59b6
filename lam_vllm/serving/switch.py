"""The run-time switch of a server, whatever the number of its processes."""

from __future__ import annotations

import os
from pathlib import Path


class Switch:
    """On or off. With a `folder` that the API processes of one server share it is one switch for all of them."""

    def __init__(self, folder: Path | None = None) -> None:
        self._off = None if folder is None else folder / f"lam-off-{_of_this_server()}"
        self._on = True

    @property
    def on(self) -> bool:
        """Whether requests are compacted at all."""
        return self._on if self._off is None else not self._off.exists()

    def turn(self, on: bool) -> None:
        """Set it, for every process.

        Raises:
            OSError: the folder cannot be written to; the switch is as it was.
        """
        if self._off is None:
            self._on = on
        elif on:
            self._off.unlink(missing_ok=True)
        else:
            self._off.touch(mode=0o600)


def _of_this_server() -> str:
    """What tells this server from any other that uses the folder, at the same time or before it.

    Its processes have one parent: its id, and since ids come again (in a container at every start) when it began.
    """
    parent = os.getppid()
    try:
        began = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[_START_TIME]
    except (OSError, IndexError):  # a parent in another name space
        began = ""
    return f"{parent}-{began}"


_START_TIME = 19
"""Place of the start time behind the name of a process, in proc(5)."""
