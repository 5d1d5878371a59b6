"""Real `lam-vllm service` processes: each logs to a file, and is ended by its process id."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.redis_server import RedisServer

ROOT = Path(__file__).parents[2]
TOKENIZER = str(ROOT / ".models/smollm2")
COMMAND = ("-c", "from lam_vllm.cli import main; main()", "service", f"--tokenizer={TOKENIZER}", "--port=0")
KEY = "a secret of sixteen bytes or more"
START_SECONDS = 120.0
STOP_SECONDS = 60.0
LONG_SECONDS = 30.0
"""How long to wait for what comes about on its own, such as a figure that is counted after its answer."""
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Running:
    """A service that answers at `url`."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def client(self, **headers: str) -> httpx.Client:
        """A plain HTTP client; `x_lam_cache_salt` stands for x-lam-cache-salt."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.Client(base_url=self.url, headers=named, timeout=60)

    def metric(self, name: str, **labels: str) -> float:
        """The value of this sample at /metrics; 0 where it is not shown yet."""
        wanted = {f'{label}="{value}"' for label, value in labels.items()}
        for line in httpx.get(f"{self.url}/metrics").text.splitlines():
            found = re.fullmatch(r"([\w:]+)(?:\{(.*)\})? (\S+)", line)
            if found and found[1] == name and set(filter(None, (found[2] or "").split(","))) == wanted:
                return float(found[3])
        return 0.0

    def stop(self) -> int:
        """End it as a supervisor does; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(STOP_SECONDS)


Start = Callable[..., Running]


def until(holds: Callable[[], Any], what: str) -> None:
    """Return when `holds()` is true; fail when that takes too long."""
    deadline = time.monotonic() + LONG_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            pytest.fail(f"never came about: {what}")
        time.sleep(POLL_SECONDS)


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Nothing of the user's own settings, no model hub, and `extra`."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("VLLM_API_KEY", "PROMETHEUS_MULTIPROC_DIR") and not name.startswith("LAM_")
    }
    return {**kept, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT), **extra}


def spawn(log: Path, arguments: tuple[str, ...], extra: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """The process of a service, which is starting."""
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, *COMMAND, *arguments],
            env=environment(extra), cwd=log.parent, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip


def answering(process: subprocess.Popen[bytes], log: Path) -> Running:
    """The service, once it says where it answers; fail with its log when it ended or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if found := re.search(r"running on (http://[\d.]+:\d+)", log.read_text(errors="replace")):
            return Running(found[1], process, log)
        time.sleep(POLL_SECONDS)
    pytest.fail("the service did not start:\n" + log.read_text(errors="replace")[-5_000:], pytrace=False)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a service with these arguments and variables; all are ended with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*arguments: str, **extra: str) -> Running:
        log = tmp_path / f"service-{len(started)}.log"
        started.append(spawn(log, arguments, extra))
        return answering(started[-1], log)

    try:
        yield begin
    finally:
        for process in started:
            process.kill()
            process.wait(STOP_SECONDS)


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis that keeps what it is told when it is killed."""
    server = RedisServer(tmp_path, append_only=True)
    server.start()
    try:
        yield server
    finally:
        server.kill()
