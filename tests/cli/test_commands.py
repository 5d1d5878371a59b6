"""The other commands, as far as they go without a server."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from lam_vllm.cli import app

FORMATS = Path(__file__).parents[1] / "data/formats"
NOBODY = "http://127.0.0.1:1"


def test_no_command_is_an_error_that_shows_the_commands() -> None:
    done = CliRunner().invoke(app, [])
    assert done.exit_code == 2
    assert all(command in done.output for command in ("compact", "doctor", "replay", "serve", "service"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.jsonl"], "missing.jsonl: No such file"),
        ([str(FORMATS / "runs.jsonl"), "--run", "third"], "no run has the id 'third'"),
        ([str(FORMATS / "runs.jsonl"), "--url", NOBODY], NOBODY),
        ([str(FORMATS / "runs.jsonl"), "--url", "localhost:8000"], "url: 'localhost:8000' is not allowed"),
        ([str(FORMATS / "runs.jsonl"), "--url", NOBODY, "--api", "smoke"], "api: 'smoke' is not allowed"),
    ],
)
def test_a_replay_that_cannot_start_is_one_line_and_exit_code_2(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(app, ["replay", *arguments])
    assert done.exit_code == 2
    assert words in done.stderr and "Traceback" not in done.output


def test_serve_refuses_its_own_flags_when_they_are_unknown() -> None:
    done = CliRunner().invoke(app, ["serve", "model", "--lam-bogus=1", "--port=1"])
    assert done.exit_code == 2
