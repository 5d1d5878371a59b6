"""The run-time switch of a server, whatever the number of its processes."""

from __future__ import annotations

import os
from pathlib import Path


class Switch:
    """On or off. With a `folder` that the API processes of one server share it is one switch for all of them."""

    def __init__(self, folder: Path | None = None) -> None:
        # The processes of one server have one parent; another server may use the folder too.
        self._off = None if folder is None else folder / f"lam-off-{os.getppid()}"
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
