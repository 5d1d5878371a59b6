"""A real vLLM server on this machine's CPU, for as long as a benchmark needs it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
from corpus_data import ROOT

from lam_vllm.errors import LamError
from lam_vllm.serving.launch import start_command

START_SECONDS = 300
STOP_SECONDS = 30


@dataclass(frozen=True)
class ServerProcess:
    """A server that answers at `url`. Its processes share a session, which is led by `process`."""

    url: str
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def process_ids(self) -> list[int]:
        """The server's processes that are there now: API servers, engine, its workers, the plugin's worker."""
        numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return sorted(number for number in numbers if _session(number) == self.process.pid)

    def cpu_seconds(self) -> float:
        """CPU time that these processes have used so far."""
        return sum(map(_cpu_seconds, self.process_ids))

    def stop(self) -> None:
        """End them all."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # its own session: this server's processes and no others
        self.process.wait()


@contextmanager
def serve(
    model: str | Path, *arguments: str, log: Path, environment: Mapping[str, str] | None = None, plugin: bool = True
) -> Iterator[ServerProcess]:
    """A server that runs inside the block, and is stopped after it, whatever happens. It writes to `log`.

    `arguments` are vLLM's, and the plugin's `--lam-*` unless `plugin` is False: then it is vLLM alone. `environment`
    is laid over the caller's, of which settings of the plugin and what would make another server of it are left out.

    Raises:
        LamError: it ended, or does not answer in time; names its log.
    """
    port = free_port()
    arguments = (str(model), "--host=127.0.0.1", f"--port={port}", *arguments)
    ours = [sys.executable, "-c", "from lam_vllm.cli import main; main()", "serve", *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(
            ours if plugin else start_command(arguments),
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**_kept_environment(), "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "2", **(environment or {})},
            cwd=ROOT,
            start_new_session=True,  # so that its other processes can be stopped with it
        )
    server = ServerProcess(f"http://127.0.0.1:{port}", log, process)
    try:
        _wait(server)
        yield server
    finally:
        server.stop()


def _kept_environment() -> dict[str, str]:
    names = ("VLLM_API_KEY", "VLLM_PLUGINS")
    return {name: value for name, value in os.environ.items() if name not in names and not name.startswith("LAM_")}


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(server: ServerProcess) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.process.poll() is None:
        with suppress(httpx.TransportError):
            if httpx.get(f"{server.url}/health").status_code == httpx.codes.OK:
                return
        time.sleep(1)
    ended = server.process.poll()
    why = f"did not start within {START_SECONDS} seconds" if ended is None else f"ended with code {ended}"
    raise LamError(f"the server {why}; see {server.log}")


def _session(process: int) -> int | None:
    try:
        return os.getsid(process)
    except OSError:  # it has ended
        return None


def _cpu_seconds(process: int) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0.0
    user, system = fields[11:13]  # utime and stime, fields 14 and 15 of proc(5)
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
