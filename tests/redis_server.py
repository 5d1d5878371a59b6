"""A real Redis server of Debian's package on a port of its own, started and ended by its process id."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import redis

from tests.ports import free_port

ROOT = Path(__file__).parents[1]
INSTALL = ROOT / "scripts/install_debian.sh"
START_SECONDS = 30.0


class RedisServer:
    """`folder` holds its log, and with `append_only` its data: then it remembers what it was told before a kill."""

    def __init__(self, folder: Path, port: int | None = None, *, append_only: bool = False) -> None:
        subprocess.run([INSTALL, "redis-server"], check=True)
        self.port = port or free_port()
        self._folder = folder
        self._append = "yes" if append_only else "no"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def process(self) -> int:
        """The process id of the server that runs."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Return when it answers. After `kill` or `stop` it is on the same port again."""
        self._process = subprocess.Popen(
            ["redis-server", "--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self._folder),
             "--save", "", "--appendonly", self._append, "--appendfsync", "always", "--logfile", "redis.log"],
        )  # fmt: skip
        until = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise RuntimeError(f"redis-server did not start on port {self.port}; its log is in {self._folder}")
            time.sleep(0.02)

    def client(self) -> redis.Redis:
        """A client of this server."""
        return redis.Redis.from_url(self.url)

    def pause(self) -> None:
        """Have it accept connections and never answer, until `go_on`."""
        os.kill(self.process, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.process, signal.SIGCONT)

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in order; nothing happens where none runs."""
        self._end(signal.SIGTERM)

    def _answers(self) -> bool:
        with self.client() as client:
            try:
                return bool(client.ping())
            except redis.exceptions.ConnectionError:  # one that reads its data says so, which is one too
                return False

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(START_SECONDS)
