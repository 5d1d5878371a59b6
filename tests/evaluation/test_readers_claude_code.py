"""Session logs of Claude Code, line by line as the client writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lam_vllm.errors import InputFileError
from lam_vllm.evaluation.corpus import Run, read_all, read_runs

HERE = {"sessionId": "s1", "isSidechain": False, "timestamp": "2026-01-01T00:00:00Z"}


def user(uuid: str, parent: str | None, content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": "user", "content": content}
    return {**HERE, "type": "user", "uuid": uuid, "parentUuid": parent, "message": message, **more}


def assistant(uuid: str, parent: str, answer: str, block: dict[str, Any], **more: Any) -> dict[str, Any]:
    message = {"id": answer, "role": "assistant", "content": [block]}
    return {**HERE, "type": "assistant", "uuid": uuid, "parentUuid": parent, "message": message, **more}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(call: str, name: str = "Read", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": name, "input": arguments}


def result(call: str, content: Any) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": call, "content": content}]


def log(path: Path, *entries: Any) -> Path:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    return path


def shown(run: Run) -> list[tuple[str, Any]]:
    return [(message["role"], message["content"]) for message in run.messages]


def test_a_session_is_one_run_whose_results_answer_their_calls(tmp_path: Path) -> None:
    path = log(
        tmp_path / "s1.jsonl",
        {"type": "summary", "summary": "Reading", "leafUuid": "u9"},
        {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
        user("u1", None, "read a"),
        assistant("u2", "u1", "m1", {"type": "thinking", "thinking": "which?", "signature": "x"}),
        assistant("u3", "u2", "m1", text("Reading.")),
        assistant("u4", "u3", "m1", use("c1", file_path="a")),
        user("u5", "u4", result("c1", "1: a"), toolUseResult={"file": "a"}),
        {**HERE, "type": "system", "subtype": "info", "uuid": "u6", "parentUuid": "u5", "content": "hook ran"},
        assistant("u7", "u6", "m2", text("Done.")),
    )
    (run,) = read_runs(path)
    assert (run.id, run.source) == ("s1", "claude-code")
    call = {"id": "c1", "type": "function", "function": {"name": "Read", "arguments": '{"file_path": "a"}'}}
    assert run.messages == (
        {"role": "user", "content": "read a"},
        {"role": "assistant", "content": "Reading.", "reasoning": "which?", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "1: a"},
        {"role": "assistant", "content": "Done."},
    )


@pytest.mark.parametrize("last_result", ["u3", "u5"])
def test_parallel_results_hang_on_their_own_calls_and_all_stand(last_result: str, tmp_path: Path) -> None:
    path = log(
        tmp_path / "s1.jsonl",
        user("u1", None, "read both"),
        assistant("u2", "u1", "m1", use("c1")),
        user("u3", "u2", result("c1", "first")),  # came while the answer was still being written
        assistant("u4", "u2", "m1", use("c2")),
        user("u5", "u4", result("c2", "second")),
        assistant("u6", last_result, "m2", text("ok")),
    )
    (run,) = read_runs(path)
    assert [call["id"] for call in run.messages[1]["tool_calls"]] == ["c1", "c2"]
    assert [(message["tool_call_id"], message["content"]) for message in run.messages[2:4]] == [
        ("c1", "first"),
        ("c2", "second"),
    ]
    assert len(run.messages) == 5


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("plain", "plain"),
        ([text("one"), text("two")], "one\ntwo"),
        ([text("seen"), {"type": "image", "source": {"type": "base64", "data": "AA=="}}], "seen"),
        (None, ""),
    ],
    ids=["string", "blocks", "image", "nothing"],
)
def test_a_result_is_a_string_or_blocks_of_text(content: Any, expected: str, tmp_path: Path) -> None:
    path = log(
        tmp_path / "s1.jsonl",
        user("u1", None, "go"),
        assistant("u2", "u1", "m1", use("c1")),
        user("u3", "u2", [*result("c1", content), text("and now?")]),
    )
    (run,) = read_runs(path)
    assert shown(run)[2:] == [("tool", expected), ("user", "and now?")]


def test_side_chains_are_runs_of_their_own(tmp_path: Path) -> None:
    side = {"isSidechain": True}
    path = log(
        tmp_path / "s1.jsonl",
        user("u1", None, "go"),
        assistant("u2", "u1", "m1", use("c1", "Task")),
        user("x1", None, "you are a helper", **side),
        user("y1", None, "you are another", **side, agentId="a7"),
        assistant("x2", "x1", "m2", text("helped"), **side),
        user("x3", "x2", "more", **side, agentId="a8"),  # some versions name the agent on some lines only
        user("u3", "u2", result("c1", "helped")),
    )
    runs = {run.id: shown(run) for run in read_runs(path)}
    assert runs == {
        "s1": [("user", "go"), ("assistant", ""), ("tool", "helped")],
        "s1/x1": [("user", "you are a helper"), ("assistant", "helped"), ("user", "more")],
        "s1/a7": [("user", "you are another")],
    }


def test_a_compacted_conversation_goes_on_as_another_run(tmp_path: Path) -> None:
    path = log(
        tmp_path / "s1.jsonl",
        user("u1", None, "go"),
        assistant("u2", "u1", "m1", text("went")),
        {**HERE, "type": "system", "subtype": "compact_boundary", "uuid": "u3", "parentUuid": None},
        user("u4", "u3", "what happened so far", isCompactSummary=True),
        assistant("u5", "u4", "m2", text("going on")),
    )
    runs = {run.id: shown(run) for run in read_runs(path)}
    assert runs == {
        "s1": [("user", "go"), ("assistant", "went")],
        "s1#2": [("user", "what happened so far"), ("assistant", "going on")],
    }


def test_turns_that_were_taken_back_are_left_out(tmp_path: Path) -> None:
    path = log(
        tmp_path / "s1.jsonl",
        user("u1", None, "go"),
        assistant("u2", "u1", "m1", text("where?")),
        user("u3", "u2", "left"),
        assistant("u4", "u3", "m2", use("c1")),
        user("u5", "u4", result("c1", "a wall")),
        user("u6", "u2", "right"),
        assistant("u7", "u6", "m3", text("fine")),
    )
    (run,) = read_runs(path)
    assert [content for _, content in shown(run)] == ["go", "where?", "right", "fine"]


def test_lines_that_a_resumed_session_repeats_count_once_and_lost_parents_do_no_harm(tmp_path: Path) -> None:
    repeated = user("u1", "not in this file", "go")
    path = log(tmp_path / "s1.jsonl", repeated, repeated, assistant("u2", "gone", "m1", text("went")))
    (run,) = read_runs(path)
    assert shown(run) == [("user", "go"), ("assistant", "went")]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ('{"type": "user", "uuid": "u2"', "line 2: not JSON"),
        ("[]", "line 2: not a line of a Claude Code log: expected an object"),
        ('{"type": "user", "uuid": "u2"}', "line 2: not a line of a Claude Code log: a line of type user without"),
        ('{"type": "user", "uuid": "u2", "message": {"content": 7}}', "content is neither a string nor a list"),
    ],
)
def test_a_bad_line_is_named_and_the_session_goes_on_without_it(bad: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "s1.jsonl"
    good = [json.dumps(user("u1", None, "go")), json.dumps(assistant("u3", "u2", "m1", text("went")))]
    path.write_text("\n".join([good[0], bad, good[1]]) + "\n")
    skipped: list[InputFileError] = []
    (run,) = read_all([path], skipped.append)
    assert shown(run) == [("user", "go"), ("assistant", "went")]
    assert [error.line for error in skipped] == [2] and words in str(skipped[0])
    with pytest.raises(InputFileError, match="line 2"):
        list(read_runs(path))


def test_a_log_without_messages_is_an_error(tmp_path: Path) -> None:
    path = log(tmp_path / "s1.jsonl", {"type": "summary", "summary": "Reading", "leafUuid": "u9"})
    with pytest.raises(InputFileError, match="without messages"):
        list(read_runs(path))
