"""The encoder's device on a real server: what it takes without a GPU and why, and the whole path where there is one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lam_vllm.commands.doctor import examine
from lam_vllm.encoders.device import choose_device
from tests.server.clients import Request, ask_chat
from tests.server.conftest import MODEL, ROOT, SERVE, LiveServer, server_environment, start
from tests.server.talks import recorded
from tests.server.test_worker import status


@pytest.fixture(scope="module")
def why_not() -> str:
    """Why no GPU can be used here; the test is skipped where one can."""
    device = choose_device("auto")
    if device.kind != "cpu":
        pytest.skip(f"about machines without a GPU; {device.kind} {device.reason}")
    return device.reason


def test_a_server_says_that_its_encoder_is_on_the_cpu_and_why(hooked: LiveServer, why_not: str) -> None:
    encoder = status(hooked)["encoder"]
    assert (encoder["device"], encoder["device_reason"]) == ("cpu", why_not)
    (finding,) = (each for each in examine(hooked.url, hooked.api_key) if each.what == "server: encoder device")
    assert (finding.found, finding.why) == ("cpu", why_not)


def test_cuda_is_refused_before_the_engine_is_started(why_not: str) -> None:
    arguments = ["--lam-encoder=minilm", "--lam-device=cuda"]
    done = subprocess.run(
        [sys.executable, *SERVE, MODEL, *arguments],
        env=server_environment({}), cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert f"--lam-device: 'cuda' is not allowed; allowed: cpu or auto on this machine: {why_not}" in done.stderr


@pytest.fixture
def on_device(tmp_path: Path) -> Iterator[LiveServer]:
    """A server whose encoder has to be on the GPU, and which measures its fast pass there; skipped without one."""
    device = choose_device("auto")
    if device.kind != "cuda":
        pytest.skip(f"needs a GPU that can be used: {device.reason}")
    settings = ("--lam-profile=paper", "--lam-encoder=minilm", "--lam-device=cuda", "--lam-search=banded")
    environment = server_environment({"XDG_CACHE_HOME": str(tmp_path)})
    server = start(tmp_path / "device.log", (*SERVE, MODEL, *settings), None, environment)
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.stop()
        shutil.rmtree(tmp_path, ignore_errors=True)


def test_a_gpu_encodes_quantises_and_verifies(on_device: LiveServer) -> None:
    encoder: dict[str, Any] = status(on_device)["encoder"]
    assert encoder["device"] == "cuda" and encoder["device_reason"].startswith("asked for: ")
    answers = [ask_chat(on_device, Request(recorded(), salt, {"profile": "paper"})) for salt in ("one", "two")]
    assert answers[0].prompt_tokens == answers[1].prompt_tokens
    counted = status(on_device)
    outcomes = {outcome: number for outcome, number in counted["requests"].items() if number}
    assert outcomes == {"chat/changed/none": 2.0}, "nothing failed open"
    assert counted["prefix_breaks"].get("defect", 0) == counted["guard_band_violations"] == 0
