"""What happens when something breaks: inside the hook, and before the server is up."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.server.clients import Request, ask_chat, rendered_ids
from tests.server.conftest import MODEL, START_SECONDS, VLLM_ARGUMENTS, LiveServer, server_environment
from tests.server.faults import FAILING_TEXT, install_missing_method
from tests.server.talks import recorded


def test_an_exception_inside_the_hook_passes_the_request_through_and_is_counted(hooked: LiveServer) -> None:
    def failures() -> float:
        with hooked.client() as client:
            counted: dict[str, float] = client.get("/v1/lam/status").json()["requests"]
        return counted.get("chat/failed_open/internal_error", 0.0)

    messages = [*recorded(), {"role": "user", "content": FAILING_TEXT}]
    before = failures()
    usage = ask_chat(hooked, Request(messages, "failing"))
    assert usage.prompt_tokens == len(rendered_ids(hooked, "chat", messages, options=False))
    assert failures() == before + 1


STARTS: dict[str, tuple[dict[str, str], str]] = {
    "a hooked method is gone": ({}, "OnlineRenderer.preprocess_chat does not exist in vLLM 0.32"),
    "no encoder for the default profile": (
        {"LAM_PROFILE": "guarded"},
        "the profile 'guarded' needs an encoder; none is named",
    ),
    "an encoder that cannot be loaded": (
        {"LAM_PROFILE": "guarded", "LAM_ENCODER": "/no/such/model"},
        "encoder '/no/such/model' cannot be loaded",
    ),
    "a store that others read, and no key": (
        {"LAM_PROFILE": "exact", "LAM_STORE_URL": "rows.sqlite"},
        "a file with a secret key, or one in LAM_KEY",
    ),
}


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Servers that must not come up, all starting at once. vLLM's render server: the same start, without an engine."""
    started = {}
    for name, (settings, _) in STARTS.items():
        folder = tmp_path_factory.mktemp("refusal")
        faults = [install_missing_method(folder / "faults")] if not settings else []
        plugins = "lam,lam_test_missing_method" if faults else "lam"
        environment = server_environment({"VLLM_PLUGINS": plugins, **settings}, *faults)
        command = ("-m", "vllm.entrypoints.launchers.render.entry", "--model", MODEL, f"--port={free_port()}")
        with (folder / "log").open("wb") as log:
            started[name] = subprocess.Popen(
                [sys.executable, *command, *VLLM_ARGUMENTS], env=environment, stdout=log, stderr=log, cwd=folder
            )
        started[name].log = folder / "log"  # type: ignore[attr-defined]
    yield started
    for process in started.values():
        process.kill()
        process.wait()


@pytest.mark.parametrize("name", STARTS)
def test_a_server_that_could_not_do_its_work_does_not_start_and_says_why(
    name: str, refusals: dict[str, subprocess.Popen[bytes]]
) -> None:
    process = refusals[name]
    assert process.wait(START_SECONDS) != 0
    log: Path = process.log  # type: ignore[attr-defined]
    assert STARTS[name][1] in log.read_text(errors="replace")
