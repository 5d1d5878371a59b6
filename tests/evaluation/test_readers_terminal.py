"""Logs of terminal agents: in the form of the corpus, and in the interchange format that Harbor writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lam_vllm.errors import InputFileError
from lam_vllm.evaluation.corpus import Run, read_runs

STEPS: list[dict[str, Any]] = [
    {"step_id": 1, "source": "system", "message": "You are in a terminal."},
    {"step_id": 2, "source": "user", "message": [{"type": "text", "text": "List the files."}]},
    {
        "step_id": 3,
        "source": "agent",
        "message": "Listing.",
        "reasoning_content": "ls will do",
        "tool_calls": [{"tool_call_id": "c1", "function_name": "bash_command", "arguments": {"keystrokes": "ls\n"}}],
        "observation": {"results": [{"source_call_id": "c1", "content": "$ ls\na.txt"}, {"content": None}]},
        "metrics": {"prompt_tokens": 100},
    },
    {"step_id": 4, "source": "agent", "message": "Done.", "observation": None},
]


def read(path: Path, document: Any) -> Run:
    path.write_text(json.dumps(document) + "\n")
    (run,) = read_runs(path)
    return run


def test_the_form_of_the_corpus_keeps_its_source_and_its_messages(tmp_path: Path) -> None:
    messages = [{"role": "assistant", "content": "ls"}, {"role": "tool", "content": "a.txt"}]
    document = {"id": "task/1", "source": "my_terminal_runs", "agent": "terminus-2", "messages": messages}
    assert read(tmp_path / "logs.jsonl", document) == Run("task/1", "my_terminal_runs", tuple(messages))


def test_results_of_a_step_follow_it_as_tool_messages(tmp_path: Path) -> None:
    run = read(tmp_path / "trajectory.json", {"schema_version": "ATIF-v1.4", "session_id": "s9", "steps": STEPS})
    assert (run.id, run.source) == ("s9", "terminal")
    function = {"name": "bash_command", "arguments": '{"keystrokes": "ls\\n"}'}
    assert run.messages == (
        {"role": "system", "content": "You are in a terminal."},
        {"role": "user", "content": "List the files."},
        {
            "role": "assistant",
            "content": "Listing.",
            "reasoning": "ls will do",
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "$ ls\na.txt"},
        {"role": "tool", "content": ""},
        {"role": "assistant", "content": "Done."},
    )


@pytest.mark.parametrize("step", [{"source": "robot", "message": ""}, {"source": "agent"}, "text"])
def test_a_step_that_is_none_is_named_by_its_place(step: Any, tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="line 1: .* step 2 is not one of ATIF-v1.4"):
        read(tmp_path / "trajectory.json", {"schema_version": "ATIF-v1.4", "steps": [STEPS[0], step]})
