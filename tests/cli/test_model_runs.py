"""`lam-vllm model` on recorded runs: every turn of them, by profile, and what of them is tool output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lam_vllm.evaluation.baselines.profiles import ProfileMethod
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.score import score
from lam_vllm.evaluation.turns import turns_of
from lam_vllm.performance_model.compaction import shared_lines
from lam_vllm.performance_model.engine import Engine
from lam_vllm.performance_model.forecast import forecast
from lam_vllm.performance_model.model import LLAMA_3_1_8B
from lam_vllm.performance_model.presets import H200
from tests.cli.modelled import TOKENIZER, by_name, model, modelled


@pytest.fixture
def recorded(tmp_path: Path, six_runs: list[Run]) -> Path:
    path = tmp_path / "runs.jsonl"
    lines = (json.dumps({"id": run.id, "source": run.source, "messages": run.messages}) + "\n" for run in six_runs)
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_recorded_runs_are_measured_turn_by_turn(recorded: Path, six_runs: list[Run], count_tokens: Any) -> None:
    found = modelled(recorded, "--tokenizer", TOKENIZER, "--device", "H200")
    method = ProfileMethod("exact", count_tokens)
    runs = [turns_of(run, method, count_tokens) for run in six_runs]
    expected = forecast(Engine(H200, LLAMA_3_1_8B), runs, "admit", "exact", shared_lines)
    record = by_name(found["policies"])["admit exact"]
    assert record["total_seconds"] == pytest.approx(expected.turn.total) and record["ttft_seconds"] == pytest.approx(
        expected.turn.ttft
    )
    rows = [score(method, run, count_tokens) for run in six_runs]
    removal = 1 - sum(row.emitted_tokens for row in rows) / sum(row.observation_tokens for row in rows)
    said = by_name(found["does_not_pay"], "about")["little removed"]["text"]
    assert float(said.partition("%")[0]) / 100 == pytest.approx(removal, abs=0.005), "but for what was never answered"


def test_tool_output_in_user_messages_is_taken_when_asked_for(tmp_path: Path) -> None:
    page = "\n".join(f"line {number} of a page that a harness sends as a user" for number in range(40))
    said = (("user", "a task"), ("assistant", "run"), ("user", page), ("assistant", "again"), ("user", page))
    messages = [{"role": role, "content": text} for role, text in (*said, ("assistant", "end"))]
    path = tmp_path / "users.jsonl"
    path.write_text(json.dumps({"messages": messages}), encoding="utf-8")
    asked = (path, "--tokenizer", TOKENIZER)
    nothing, some = modelled(*asked), modelled(*asked, "--observations", "tool+user")
    said_nothing, said_some = (by_name(each["does_not_pay"], "about")["little removed"] for each in (nothing, some))
    assert said_nothing["applies"] and "no tool output" in said_nothing["text"]
    assert not said_some["applies"] and float(said_some["text"].partition("%")[0]) > 40


def test_profiles_are_measured_side_by_side(six_runs: list[Run], tmp_path: Path) -> None:
    short = tmp_path / "short.jsonl"
    start = next(run for run in six_runs if run.source == "taubench_airline").messages[:12]
    short.write_text(json.dumps({"messages": start}) + "\n", encoding="utf-8")
    found = modelled(
        short, "--tokenizer", TOKENIZER, "--encoder", "minilm", "--profile", "exact", "--profile", "guarded"
    )
    policies = by_name(found["policies"])
    assert policies["admit guarded"]["compaction_seconds"] > policies["admit exact"]["compaction_seconds"] > 0
    assert list(by_name(found["full"])) == ["no compaction", "admit exact", "admit guarded"]


def test_runs_without_an_answer_are_said_so(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "hello"}]}\n', encoding="utf-8")
    done = model(path, "--tokenizer", TOKENIZER)
    assert done.exit_code == 2 and "runs in which a model answers at least once" in done.stderr
