"""A vLLM server with the plugin on this machine's CPU, for as long as a benchmark asks it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from corpus_data import ROOT, SERVED_MODEL

from lam_vllm.errors import LamError

START_SECONDS = 300
STOP_SECONDS = 30
ARGUMENTS = (
    "--host=127.0.0.1",
    "--served-model-name=smollm2",
    "--lam-profile=exact",
    "--max-model-len=4096",
    "--gpu-memory-utilization=0.3",  # of the machine's memory, on the CPU platform
    "--block-size=32",
    "--enable-prefix-caching",
    "--enforce-eager",
)


@contextmanager
def cpu_server() -> Iterator[str]:
    """The URL of a server that runs inside the block, in one thread, and is stopped after it, whatever happens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", "from lam_vllm.cli import main; main()", "serve", str(SERVED_MODEL)]
    with tempfile.NamedTemporaryFile("w", prefix="stub-wording-", suffix=".log", delete=False) as log:
        process = subprocess.Popen(
            [*command, f"--port={port}", *ARGUMENTS],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=_environment(),
            cwd=ROOT,
            start_new_session=True,  # so that its engine process can be stopped with it
        )
    try:
        _wait(f"http://127.0.0.1:{port}", process, Path(log.name))
        yield f"http://127.0.0.1:{port}"
    finally:
        _stop(process)


def _environment() -> dict[str, str]:
    names = ("VLLM_API_KEY", "VLLM_PLUGINS")
    kept = {name: value for name, value in os.environ.items() if name not in names and not name.startswith("LAM_")}
    threads = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    return {**kept, **threads, "VLLM_CPU_KVCACHE_SPACE": "2", "HF_HUB_OFFLINE": "1"}


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return when the server answers.

    Raises:
        LamError: it ended, or does not answer in time; names its log.
    """
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/health").status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass
        time.sleep(1)
    raise LamError(f"the server did not start within {START_SECONDS} seconds; see {log}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its own session: this server's processes and no others
        process.wait()
