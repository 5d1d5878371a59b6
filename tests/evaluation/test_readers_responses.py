"""Items of the OpenAI Responses API as chat messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lam_vllm.errors import InputFileError
from lam_vllm.evaluation.corpus import Run, read_runs
from lam_vllm.evaluation.live.dialects import dialect

ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": "list"},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "two at once"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Looking."}]},
    {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"},
    {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "*** Begin"},
    {"type": "function_call_output", "call_id": "c1", "output": "a.py"},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "applied"}]},
    {"type": "local_shell_call", "call_id": "c3", "action": {"type": "exec", "command": ["ls"]}},
    {"type": "local_shell_call_output", "id": "c3", "output": '{"stdout": "b.py"}'},
    {"type": "web_search_call", "id": "ws_1", "status": "completed"},
]


def read(tmp_path: Path, document: Any) -> Run:
    path = tmp_path / "items.json"
    path.write_text(json.dumps(document, indent=1))
    (run,) = read_runs(path)
    return run


def call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_what_the_assistant_does_between_results_is_one_message(tmp_path: Path) -> None:
    run = read(tmp_path, ITEMS)
    assert (run.id, run.source) == ("items.json:1", "responses")
    assert run.messages == (
        {"role": "user", "content": "list"},
        {
            "role": "assistant",
            "content": "Looking.",
            "reasoning": "two at once",
            "tool_calls": [call("c1", "ls", "{}"), call("c2", "patch", '{"input": "*** Begin"}')],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "a.py"},
        {"role": "tool", "tool_call_id": "c2", "content": "applied"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [call("c3", "local_shell", '{"type": "exec", "command": ["ls"]}')],
        },
        {"role": "tool", "tool_call_id": "c3", "content": '{"stdout": "b.py"}'},
    )


def test_two_texts_of_the_assistant_are_two_messages(tmp_path: Path) -> None:
    run = read(tmp_path, [*ITEMS[3:5], *({"type": "message", "role": "assistant", "content": word} for word in "ab")])
    assert [message["content"] for message in run.messages] == ["a", "b"]
    assert len(run.messages[0]["tool_calls"]) == 2


def test_a_request_and_its_response_are_read_together(tmp_path: Path) -> None:
    output = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yes"}]}]
    run = read(tmp_path, {"id": "resp_1", "instructions": "Be short.", "input": "is it?", "output": output})
    assert run.id == "resp_1"
    assert [(message["role"], message["content"]) for message in run.messages] == [
        ("system", "Be short."),
        ("user", "is it?"),
        ("assistant", "yes"),
    ]


def test_what_replay_sends_is_read_back_as_it_was(tmp_path: Path) -> None:
    chat: list[dict[str, Any]] = [
        {"role": "user", "content": "list"},
        {"role": "assistant", "content": "Looking.", "tool_calls": [call("c1", "ls", "{}")]},
        {"role": "tool", "tool_call_id": "c1", "content": "a.py"},
    ]
    run = read(tmp_path, dialect("responses").body(chat, 8))
    assert list(run.messages) == chat


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"type": "function_call_output", "call_id": "c1"}, "item 2 is not one of the Responses API: 'output'"),
        ({"type": "computer_call_output", "output": {}}, "results of type 'computer_call_output' are not read"),
        ({"type": 7}, "expected an object with a type"),
        ("text", "expected an object with a type"),
    ],
)
def test_an_item_that_is_none_is_named_by_its_place(item: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="line 1: expected a run of the form 'responses'") as caught:
        read(tmp_path, [ITEMS[3], item])
    assert words in str(caught.value)
