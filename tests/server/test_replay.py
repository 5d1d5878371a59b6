"""Commands that speak to the real server: a recorded run replayed through every API."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lam_vllm.cli import app
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.live.client import Client, ServerError
from lam_vllm.evaluation.live.replay import replay
from tests.server.conftest import LiveServer

LISTING = "".join(f"-rw-r--r-- 1 user user {1000 + number} file_{number}.txt\n" for number in range(40))
RUN = Run(
    "listing",
    "made",
    (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is in this folder?"},
        {"role": "assistant", "content": "ls -l"},
        {"role": "tool", "content": LISTING},
        {"role": "assistant", "content": "ls -l"},
        {"role": "tool", "content": LISTING},
        {"role": "assistant", "content": "Forty files."},
    ),
)


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_a_run_is_answered_off_and_on_with_fewer_tokens_on(api: str, hooked: LiveServer) -> None:
    result = replay(RUN, Client(hooked.url, hooked.api_key), api=api, profile="exact", max_tokens=2)
    assert len(result.answered_in_both) == 3
    assert [turn.report.get("outcome") for turn in result.on] == ["unchanged", "unchanged", "changed"]
    assert not result.prefix_breaks
    off, on = ([turn.usage for turn in side] for side in (result.off, result.on))
    assert [usage.cached_tokens for usage in (off[0], on[0]) if usage] == [0, 0]  # nobody warmed the other's cache
    assert off[:2] == on[:2]
    assert off[2] and on[2] and on[2].prompt_tokens < off[2].prompt_tokens - 500
    assert result.removed_tokens["l0"] > 500


def test_a_prompt_that_does_not_fit_is_a_turn_without_an_answer(hooked: LiveServer) -> None:
    long = Run("long", "made", ({"role": "user", "content": "word " * 20_000}, {"role": "assistant", "content": "no"}))
    result = replay(long, Client(hooked.url, hooked.api_key))
    assert (result.off[0].usage, result.on[0].usage, result.rescued) == (None, None, 0)


def test_a_missing_key_is_an_error_and_not_an_unanswered_turn(hooked: LiveServer) -> None:
    with pytest.raises(ServerError, match="401"):
        replay(RUN, Client(hooked.url))


def test_the_command_prints_the_table(hooked: LiveServer, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(RUN.messages))
    options = ["--url", hooked.url, "--api-key", hooked.api_key or "", "--max-turns", "1", "--max-tokens", "1"]
    done = CliRunner().invoke(app, ["replay", str(tmp_path / "run.json"), *options])
    assert done.exit_code == 0, done.output
    assert "1 of 1" in done.stdout and "run.json:1" in done.stdout
