"""`lam-vllm service` as far as it goes without serving: what it refuses, and what it makes of its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from lam_vllm import metrics
from lam_vllm.cli import app
from lam_vllm.commands import service
from lam_vllm.serving import standalone
from lam_vllm.serving.keys import server_keys
from lam_vllm.serving.service import Service
from lam_vllm.serving.settings import Settings
from tests.conftest import SERVED_MODEL


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--lam-bogus=1"], "--lam-bogus"),
        (["--lam-min-tokens", "-1"], "--lam-min-tokens: -1 is not allowed"),
        (["--lam-observations=tool+user"], "--lam-observations"),
        (["--lam-profile=guarded", "--lam-encoder=/nowhere"], "/nowhere"),
        (["--lam-store-url=store.sqlite"], "LAM_KEY_FILE"),
        (["--lam-store-url=store.sqlite", "--lam-key-file=/nowhere"], "--lam-key-file: '/nowhere' is not allowed"),
        (["--lam-store-url=ftp://somewhere"], "--lam-store-url"),
        (["--tokenizer=/nowhere/tokenizer.json"], "tokenizer: '/nowhere/tokenizer.json' is not allowed"),
        (["model"], "argument: 'model' is not allowed"),
        (["--port=70000"], "--port"),
    ],
)
def test_it_refuses_to_start_with_what_it_cannot_serve(
    arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    done = CliRunner().invoke(app, ["service", f"--tokenizer={SERVED_MODEL}", *arguments], env={"COLUMNS": "200"})
    assert done.exit_code == 2, done.output
    assert words in done.stderr and "Traceback" not in done.output
    assert list(tmp_path.iterdir()) == []


def test_it_names_the_extra_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_NEEDED", ("fastapi", "no_such_package"))
    done = CliRunner().invoke(app, ["service", f"--tokenizer={SERVED_MODEL}"])
    assert done.exit_code == 2
    assert "lam-vllm[service]" in done.stderr


def started(monkeypatch: pytest.MonkeyPatch, *flags: str) -> Settings:
    """The settings of a service that was started with these flags; it is built, and serves nothing."""
    services: list[Service] = []
    monkeypatch.setattr(standalone, "run", lambda built, **_: services.append(built))
    monkeypatch.setattr(metrics, "process_metrics", lambda: metrics.Metrics(CollectorRegistry()))
    done = CliRunner().invoke(app, ["service", f"--tokenizer={SERVED_MODEL}", *flags])
    assert done.exit_code == 0, done.output
    (built,) = services
    built.close()
    return built.settings


@pytest.mark.parametrize(
    ("file", "flags", "mode"),
    [
        ("", [], "on"),
        ("min_tokens: 8", [], "on"),
        ("enabled: false", [], "off"),
        ("enabled: false", ["--lam-enabled=true"], "on"),
        ("", ["--lam-enabled=observe"], "observe"),
        ("", ["--lam-enabled", "false"], "off"),
    ],
)
def test_it_is_on_unless_said_otherwise(
    file: str, flags: list[str], mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "lam.yaml"
    config.write_text(file or "{}")
    assert started(monkeypatch, f"--lam-config={config}", *flags).options.mode == mode


@pytest.mark.parametrize(
    ("file", "mode"),
    [
        ("models: {small: {usage: true}}", "on"),
        ("models: {small: {}}", "on"),
        ("models: {small: {enabled: observe}}", "observe"),
        ("enabled: false\nmodels: {small: {}}", "off"),
    ],
)
def test_a_model_with_options_of_its_own_is_on_as_the_others_are(
    file: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "lam.yaml"
    config.write_text(file)
    assert started(monkeypatch, f"--lam-config={config}").rollout.models["small"].mode == mode


def test_its_help_says_where_secrets_belong() -> None:
    done = CliRunner().invoke(app, ["service", "--help"], env={"COLUMNS": "200"})
    for name in ("LAM_API_KEY", "LAM_KEY", "LAM_STORE_URL"):
        assert name in done.stdout


@pytest.mark.parametrize(
    ("given", "environment", "keys"),
    [
        ([], {}, []),
        ([""], {"LAM_API_KEY": ""}, []),
        ([], {"VLLM_API_KEY": "v"}, ["v"]),
        ([], {"VLLM_API_KEY": "v", "LAM_API_KEY": "l"}, ["l"]),
        (["a", "b"], {"LAM_API_KEY": "l"}, ["a", "b"]),
    ],
)
def test_keys_come_from_the_command_line_or_else_from_the_environment(
    given: list[str], environment: dict[str, str], keys: list[Any]
) -> None:
    assert server_keys(given, environment) == keys
