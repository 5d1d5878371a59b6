"""Every format in which agents leave their runs, and every way in which a file can be none of them."""

from __future__ import annotations

import lzma
from collections import Counter
from pathlib import Path

import pytest

from lam_vllm.errors import InputFileError
from lam_vllm.evaluation.corpus import Run, distinct, find_run, read_all, read_runs

DATA = Path(__file__).parents[1] / "data"
FORMATS = DATA / "formats"
LINE = '{"messages": [{"role": "user", "content": "hi"}]}\n'


def roles(path: Path) -> list[str]:
    (run,) = read_runs(path)
    return [message["role"] for message in run.messages]


def test_the_corpus_has_all_runs_of_every_source() -> None:
    runs = list(read_runs(DATA / "corpus" / "trajectories.jsonl.xz"))
    assert Counter(run.source for run in runs) == {
        "mini_gemini3_verified": 97,
        "openhands_study": 8,
        "swesmith_samples": 8,
        "sweagent_demos": 12,
        "taubench_airline": 10,
    }
    assert len({run.id for run in runs}) == 135
    assert sum(run.gold_patch is not None for run in runs) == 105
    assert sum(message["role"] == "tool" for run in runs for message in run.messages) == 4_355


def test_a_list_of_openai_messages_is_one_run_with_its_calls() -> None:
    (run,) = read_runs(FORMATS / "messages.json")
    assert (run.id, run.source) == ("messages.json:1", "messages")
    assert run.messages[2]["tool_calls"][0]["id"] == run.messages[3]["tool_call_id"] == "call_1"


def test_json_lines_are_one_run_each_and_blank_lines_are_none() -> None:
    first, second = read_runs(FORMATS / "runs.jsonl")
    assert (first.id, first.source, first.resolved) == ("first", "hand", True)
    assert (second.id, second.source, second.resolved) == ("runs.jsonl:3", "messages", None)


def test_sweagent_results_become_tool_messages_and_the_task_stays_the_users() -> None:
    (run,) = read_runs(FORMATS / "sweagent.traj")
    assert roles(FORMATS / "sweagent.traj") == ["system", "user", "user", "assistant", "tool", "assistant", "tool"]
    assert run.id == "org__repo-1"
    assert run.messages[6] == {"role": "tool", "content": "done", "tool_call_id": "call_7"}


def test_sweagent_steps_without_history_alternate_response_and_observation() -> None:
    (run,) = read_runs(FORMATS / "sweagent_steps.traj")
    assert [(message["role"], message["content"]) for message in run.messages] == [
        ("assistant", "Let me look."),
        ("tool", "main.py"),
        ("assistant", "Now the file."),
        ("tool", "print(1)"),
    ]


def test_mini_sweagent_results_become_tool_messages() -> None:
    (run,) = read_runs(FORMATS / "mini.traj.json")
    assert roles(FORMATS / "mini.traj.json") == ["system", "user", "assistant", "tool"]
    assert run.messages[2] == {"role": "assistant", "content": "```bash\nls\n```"}


@pytest.mark.parametrize("name", ["messages.json", "runs.jsonl", "sweagent.traj", "mini.traj.json"])
def test_the_content_decides_not_the_name(name: str, tmp_path: Path) -> None:
    renamed = tmp_path / "anything"
    renamed.write_bytes(lzma.compress((FORMATS / name).read_bytes()))
    assert [run.messages for run in read_runs(renamed)] == [run.messages for run in read_runs(FORMATS / name)]


def test_a_missing_file_is_named() -> None:
    with pytest.raises(InputFileError, match=r"nowhere\.jsonl: No such file"):
        list(read_runs("nowhere.jsonl"))


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_an_empty_file_is_an_error(content: str, tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text(content)
    with pytest.raises(InputFileError, match="empty"):
        list(read_runs(path))


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("hello", 1),
        ('\n{"messages":', 2),
        (LINE + "\n" + LINE[:-3], 3),
        (LINE[:20] + "\n" + LINE, 1),
        ('[\n  {"role": "user"},\n  oops\n]', 3),
    ],
    ids=["not_json", "cut_short", "bad_later_line", "bad_first_line", "bad_document"],
)
def test_what_is_not_json_is_reported_with_its_line(content: str, line: int, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(content)
    with pytest.raises(InputFileError, match="not JSON") as caught:
        list(read_runs(path))
    assert caught.value.line == line


@pytest.mark.parametrize("value", ["7", "{}", '{"messages": []}', '{"messages": [{"content": "no role"}]}', "[1]"])
def test_json_that_is_no_run_is_reported_with_its_line(value: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_text(LINE + value + "\n")
    with pytest.raises(InputFileError, match="expected a run") as caught:
        list(read_runs(path))
    assert caught.value.line == 2


def test_runs_before_a_bad_line_are_given_first(tmp_path: Path) -> None:
    path = tmp_path / "late.jsonl"
    path.write_text(LINE + "broken\n")
    runs = read_runs(path)
    assert next(runs).messages == ({"role": "user", "content": "hi"},)
    with pytest.raises(InputFileError, match="line 2"):
        next(runs)


def test_bytes_that_are_not_text_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "latin.jsonl"
    path.write_bytes(b'{"messages": "\xe9"}')
    with pytest.raises(InputFileError, match="not UTF-8"):
        list(read_runs(path))


def test_half_an_xz_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "half.xz"
    path.write_bytes(lzma.compress(LINE.encode() * 100)[:40])
    with pytest.raises(InputFileError, match="not a whole xz file"):
        list(read_runs(path))


def test_a_run_is_found_by_its_id_or_is_the_first() -> None:
    path = FORMATS / "runs.jsonl"
    assert find_run(path, None).id == "first"
    assert find_run(path, "runs.jsonl:3").messages[0]["content"] == "show"
    with pytest.raises(InputFileError, match="no run has the id 'third'"):
        find_run(path, "third")


def test_of_a_broken_file_it_is_said_who_can_go_on(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(f'{LINE}{{"messages": 3}}\n')
    with pytest.raises(InputFileError, match=r"line 2: expected a run.*analyze and eval skip such runs"):
        find_run(path, "behind it")
    with pytest.raises(InputFileError, match=r"nowhere.jsonl: No such file or directory$"):
        find_run(tmp_path / "nowhere.jsonl", None)


def test_runs_of_one_name_are_told_apart_within_their_source() -> None:
    runs = [Run(name, source, ()) for source in ("one", "other") for name in ("a", "a", "a#2", "b", "a")]
    assert [run.id for run in distinct(runs)] == 2 * ["a", "a#2", "a#2#2", "b", "a#3"]
    assert [run.source for run in distinct(runs)] == 5 * ["one"] + 5 * ["other"]


def test_what_cannot_be_read_is_reported_once_and_the_rest_comes(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text(LINE)
    bad.write_text(f'oops\n{LINE}[1]\n{{"messages":\n{LINE}')
    skipped: list[InputFileError] = []
    runs = list(read_all([bad, tmp_path / "nowhere.jsonl", good], skipped.append))
    assert [run.id for run in runs] == ["bad.jsonl:2", "bad.jsonl:5", "good.jsonl:1"]
    assert [(Path(error.path).name, error.line) for error in skipped] == [
        ("bad.jsonl", 1),
        ("bad.jsonl", 3),
        ("bad.jsonl", 4),
        ("nowhere.jsonl", None),
    ]


def test_bytes_that_are_not_text_cost_their_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "latin.jsonl"
    path.write_bytes(LINE.encode() + b'{"messages": "\xe9"}\n' + LINE.encode())
    skipped: list[InputFileError] = []
    assert [run.id for run in read_all([path], skipped.append)] == ["latin.jsonl:1", "latin.jsonl:3"]
    assert [str(error).partition(": ")[2] for error in skipped] == [
        "not UTF-8: invalid continuation byte at byte 14 of the line"
    ]


def test_half_an_xz_file_gives_what_it_holds_and_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "half.xz"
    path.write_bytes(lzma.compress(LINE.encode()) + lzma.compress(LINE.encode() * 100)[:40])
    skipped: list[InputFileError] = []
    assert len(list(read_all([path], skipped.append))) == 1
    assert "not a whole xz file" in str(skipped[0])
