"""A real `lam-vllm service` for as long as a benchmark needs it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
from corpus_data import ROOT, SERVED_MODEL
from vllm_server import free_port

from lam_vllm.errors import LamError

START_SECONDS = 60
STOP_SECONDS = 30


@contextmanager
def service(*flags: str, log: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """The URL of a service with these `--lam-*` flags, which is stopped after the block. It writes to `log`.

    `environment` is laid over the caller's, of which settings of the plugin are left out.

    Raises:
        LamError: it ended, or does not answer in time; names its log.
    """
    port = free_port()
    own = {name: value for name, value in os.environ.items() if not name.startswith(("LAM_", "VLLM_API_KEY"))}
    command = (
        "-c",
        "from lam_vllm.cli import main; main()",
        "service",
        f"--tokenizer={SERVED_MODEL}",
        f"--port={port}",
    )
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *command, *flags],
            stdout=output, stderr=subprocess.STDOUT, env={**own, **environment}, cwd=ROOT,
        )  # fmt: skip
    try:
        _wait(process, f"http://127.0.0.1:{port}", log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        process.kill()
        process.wait()


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(httpx.TransportError):
            if httpx.get(f"{url}/health").status_code == httpx.codes.OK:
                return
        time.sleep(0.1)
    raise LamError(f"the service does not answer; see {log}")
