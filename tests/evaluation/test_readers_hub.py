"""Data sets read through the library `datasets`: from folders made here, and from a hub that is out of reach."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lam_vllm.errors import InputFileError
from lam_vllm.evaluation.corpus import read_all, read_runs
from lam_vllm.evaluation.readers.hub import is_dataset

CHAT = [
    {"role": "system", "content": "fix it"},
    {"role": "user", "content": "the task"},
    {"role": "assistant", "content": "ls"},
    {"role": "user", "content": "a.py"},
]
TOOL = [*CHAT[:3], {"role": "tool", "content": [{"type": "text", "text": "a.py"}], "tool_call_ids": ["c1"]}]


def row(number: int, messages: Any) -> dict[str, Any]:
    return {
        "messages": messages if isinstance(messages, str) else json.dumps(messages),
        "instance_id": "org__repo.1",
        "resolved": number % 2 == 0,
        "model": "some-model",
        "traj_id": f"org__repo.1.{number}",
        "patch": "diff of the agent",
    }


def dataset(folder: Path, **splits: list[dict[str, Any]]) -> Path:
    """A data set on disk with a file for each split, as the hub would serve it."""
    from datasets import Dataset

    folder.mkdir()
    for name, rows in splits.items():
        Dataset.from_list(rows).to_parquet(folder / f"{name}.parquet")
    return folder


def logs(folder: Path, **files: list[dict[str, Any]]) -> Path:
    """A folder of files with a run a line."""
    folder.mkdir()
    for name, rows in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    return folder


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def test_rows_of_swe_smith_are_runs_named_by_trajectory(tmp_path: Path) -> None:
    first, second = read_runs(dataset(tmp_path / "smith", train=[row(0, CHAT), row(1, TOOL)]))
    assert (first.id, first.source, first.resolved) == ("org__repo.1.0", "swe-smith", True)
    assert (second.id, second.resolved) == ("org__repo.1.1", False)
    assert first.gold_patch is None  # `patch` is what the agent made
    assert [message["role"] for message in first.messages] == ["system", "user", "assistant", "tool"]
    assert second.messages[3] == {
        "role": "tool",
        "content": [{"type": "text", "text": "a.py"}],
        "tool_call_id": "c1",
    }


def test_rows_whose_messages_are_a_list_are_read_as_they_are(tmp_path: Path) -> None:
    (run,) = read_runs(dataset(tmp_path / "chats", train=[{"id": "x", "messages": CHAT}]))
    assert run.id == "x"
    assert [message["role"] for message in run.messages] == ["system", "user", "assistant", "user"]


def test_one_of_several_splits_has_to_be_named(tmp_path: Path) -> None:
    folder = dataset(tmp_path / "two", train=[row(0, CHAT)], test=[row(1, CHAT), row(2, CHAT)])
    assert [run.id[-1] for run in read_runs(f"{folder}:test")] == ["1", "2"]
    with pytest.raises(InputFileError, match=r"several splits; name one as .*two:SPLIT, of train, test"):
        list(read_runs(folder))
    with pytest.raises(InputFileError, match="no split 'dev'"):
        list(read_runs(f"{folder}:dev"))


def test_a_malformed_row_is_named_and_the_others_come(tmp_path: Path) -> None:
    folder = dataset(tmp_path / "odd", train=[row(0, CHAT), row(1, "[{"), row(2, []), row(3, CHAT)])
    skipped: list[InputFileError] = []
    assert [run.id[-1] for run in read_all([folder], skipped.append)] == ["0", "3"]
    assert [error.line for error in skipped] == [2, 3]
    with pytest.raises(InputFileError, match="odd, line 2: expected a run of the form 'swe-smith'"):
        list(read_runs(folder))


def test_a_folder_of_logs_is_read_file_by_file(tmp_path: Path) -> None:
    folder = logs(tmp_path / "runs", b=[row(1, CHAT)], a=[row(0, CHAT), row(2, "[{")])
    (folder / "notes.txt").write_text("not a run")
    (folder / "older.jsonl").mkdir()
    (folder / "c.traj").write_text("{")
    assert not is_dataset(folder) and is_dataset(f"{folder}:train")
    skipped: list[InputFileError] = []
    assert [run.id[-1] for run in read_all([folder], skipped.append)] == ["0", "1"]
    assert [error.place.removeprefix(f"{folder}/") for error in skipped] == ["a.jsonl, line 2", "c.traj, line 1"]
    runs = read_runs(folder)
    assert next(runs).id[-1] == "0"
    with pytest.raises(InputFileError, match="a.jsonl, line 2: expected a run"):
        next(runs)


def test_a_named_split_of_a_folder_of_logs_is_that_of_a_data_set(tmp_path: Path) -> None:
    folder = logs(tmp_path / "smith", train=[row(0, CHAT)], test=[row(1, CHAT), row(2, CHAT)])
    assert [run.id[-1] for run in read_runs(f"{folder}:test")] == ["1", "2"]


def test_a_mistyped_path_is_not_looked_for_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    logs(tmp_path / "runs", first=[row(0, CHAT)])
    assert not is_dataset("runs/missng") and is_dataset("elsewhere/missng")
    with pytest.raises(InputFileError, match="^runs/missng: No such file or directory$"):
        list(read_runs("runs/missng"))


def test_a_folder_that_holds_no_data_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputFileError, match="empty: cannot be read as a data set"):
        list(read_runs(tmp_path / "empty"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("SWE-bench/SWE-smith-trajectories", True),
        ("SWE-bench/SWE-smith-trajectories:tool", True),
        ("runs/first.jsonl", False),
        ("runs/first.traj", False),
        ("runs.jsonl", False),
        ("/runs/first", False),
    ],
)
def test_a_name_on_the_hub_is_told_from_a_file(name: str, expected: bool) -> None:
    assert is_dataset(name) is expected


def test_a_hub_out_of_reach_and_a_missing_library_are_said_in_one_line() -> None:
    code = """if True:
        import sys
        from lam_vllm.errors import LamError
        from lam_vllm.evaluation.corpus import read_runs
        for missing in (False, True):
            if missing:
                sys.modules["datasets"] = None
            try:
                next(read_runs("SWE-bench/SWE-smith-trajectories"))
            except LamError as error:
                print(type(error).__name__, error)
    """
    offline = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=offline)
    unreachable, uninstalled = done.stdout.splitlines()
    assert unreachable.startswith("InputFileError SWE-bench/SWE-smith-trajectories: cannot be read as a data set")
    assert uninstalled.startswith("MissingExtraError") and "'lam-vllm[eval]'" in uninstalled
