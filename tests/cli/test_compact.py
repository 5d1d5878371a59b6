"""`lam-vllm compact` on real files: what is written, what is printed, and what is not left behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from lam_vllm import reconstruct
from lam_vllm.cli import app
from lam_vllm.evaluation.corpus import Run

ROOT = Path(__file__).parents[2]
TOKENIZER = str(ROOT / ".models/smollm2")
WORDS = ("alder", "birch", "cedar", "daphne", "elm", "fir", "gorse", "hazel", "ivy", "juniper", "larch", "maple")
FILE = "".join(f"{number}: the {word} stands beside the river\n" for number, word in enumerate(WORDS, 1))
CHAT = [
    {"role": "user", "content": "read it twice"},
    {"role": "assistant", "content": "cat file"},
    {"role": "tool", "content": FILE},
    {"role": "assistant", "content": "cat file"},
    {"role": "tool", "content": FILE},
]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write(path: Path, *documents: Any) -> Path:
    path.write_text("".join(json.dumps(document) + "\n" for document in documents), encoding="utf-8")
    return path


def compact(source: Path, target: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["compact", str(source), "--out", str(target), *options])


def test_each_line_comes_back_with_shorter_messages_and_its_own_fields(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", {"id": "a", "more": [1], "messages": CHAT}, {"messages": CHAT[:3]})
    done = compact(source, tmp_path / "out.jsonl", "--tokenizer", TOKENIZER)
    assert done.exit_code == 0, done.output
    first, second = lines(tmp_path / "out.jsonl")
    assert (first["id"], first["more"]) == ("a", [1])
    assert reconstruct(first["messages"]) == CHAT
    assert first["messages"][4]["content"].startswith("[result 1 repeats]")
    assert second["messages"] == CHAT[:3] and second["lam"]["decisions"] == []


def test_every_cut_can_be_audited(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", {"messages": CHAT})
    compact(source, tmp_path / "out.jsonl", "--tokenizer", TOKENIZER)
    ((decision, *others), account) = (
        lines(tmp_path / "out.jsonl")[0]["lam"][key] for key in ("decisions", "removed_tokens")
    )
    assert not others
    assert CHAT[decision["message"]]["content"][decision["start"] : decision["end"]] == FILE
    assert (decision["target_result"], decision["distance"]) == (1, 0.0)
    assert decision["removed_tokens"] == account["l0"]


def test_near_duplicates_name_their_representative_and_its_distance(tmp_path: Path) -> None:
    changed = FILE.replace("river", "stream", 1)
    chat = [*CHAT[:4], {"role": "tool", "content": changed}]
    source = write(tmp_path / "in.jsonl", {"messages": chat})
    done = compact(source, tmp_path / "out.jsonl", "--encoder", "minilm", "--profile", "paper")
    assert done.exit_code == 0, done.output
    account = lines(tmp_path / "out.jsonl")[0]["lam"]
    near = [decision for decision in account["decisions"] if decision["layer"] == "l1"]
    assert near and all(0 < decision["distance"] <= account["delta_hat"] <= account["delta"] for decision in near)
    assert {decision["target_result"] for decision in near} == {1}


def test_the_table_has_a_row_for_each_run(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", {"id": "alpha", "messages": CHAT}, {"messages": CHAT[:1]})
    done = compact(source, tmp_path / "out.jsonl", "--tokenizer", TOKENIZER)
    assert "profile exact" in done.stdout and "alpha" in done.stdout and "line 2" in done.stdout


def test_the_same_file_twice_gives_the_same_bytes(tmp_path: Path, six_runs: list[Run]) -> None:
    source = write(tmp_path / "in.jsonl", *({"id": run.id, "messages": run.messages} for run in six_runs))
    for name in ("one.jsonl", "two.jsonl"):
        assert compact(source, tmp_path / name, "--tokenizer", TOKENIZER).exit_code == 0
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()


def test_flags_win_over_the_yaml_file(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", {"messages": CHAT})
    (tmp_path / "lam.yaml").write_text("profile: exact\nmin_tokens: 100000\n")
    options = ("--tokenizer", TOKENIZER, "--config", str(tmp_path / "lam.yaml"))
    compact(source, tmp_path / "yaml.jsonl", *options)
    compact(source, tmp_path / "flag.jsonl", *options, "--min-tokens", "16")
    assert lines(tmp_path / "yaml.jsonl")[0]["messages"] == CHAT
    assert lines(tmp_path / "flag.jsonl")[0]["messages"] != CHAT


def test_tool_output_in_user_messages_is_taken_when_asked_for(tmp_path: Path) -> None:
    chat = [{**message, "role": "user"} if message["role"] == "tool" else message for message in CHAT]
    source = write(tmp_path / "in.jsonl", {"messages": chat})
    compact(source, tmp_path / "tool.jsonl", "--tokenizer", TOKENIZER)
    compact(source, tmp_path / "user.jsonl", "--tokenizer", TOKENIZER, "--observations", "tool+user")
    assert lines(tmp_path / "tool.jsonl")[0]["messages"] == chat
    assert lines(tmp_path / "user.jsonl")[0]["messages"] != chat


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "tokenizer: None is not allowed"),
        (("--tokenizer", "no/such/tokenizer"), "tokenizer: 'no/such/tokenizer' is not allowed"),
        (
            ("--tokenizer", TOKENIZER, "--profile", "best"),
            "profile: 'best' is not allowed; allowed: exact, guarded, paper",
        ),
        (("--tokenizer", TOKENIZER, "--profile", "guarded"), "encoder: None is not allowed"),
        (("--tokenizer", TOKENIZER, "--min-tokens", "-1"), "min_tokens: -1 is not allowed"),
        (("--tokenizer", TOKENIZER, "--config", "missing.yaml"), "missing.yaml: No such file"),
    ],
)
def test_a_bad_option_is_one_line_and_exit_code_2(options: tuple[str, ...], words: str, tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", {"messages": CHAT})
    done = compact(source, tmp_path / "out.jsonl", *options)
    assert done.exit_code == 2
    assert words in done.stderr and "Traceback" not in done.output
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "in.jsonl: No such file"),
        ("", "in.jsonl: the file is empty"),
        ('{"messages": []}\nnot json\n', "in.jsonl, line 2: not JSON"),
        ('{"messages": []}\n\n[]\n', "in.jsonl, line 3: expected an object"),
        (f'{{"messages": [], "n": {"7" * 5_000}}}\n', "in.jsonl, line 1: JSON with a number of too many digits"),
        (f'{{"messages": []}}\n{{"n": {"7" * 5_000}}}\n', "in.jsonl, line 2: JSON with a number of too many digits"),
        (f'{{"messages": []}}\n{100_000 * "["}\n', "in.jsonl, line 2: JSON nested too deeply"),
        (f'{100_000 * "["}\n{{"messages": []}}\n', "in.jsonl, line 1: JSON nested too deeply"),
    ],
    ids=["missing", "empty", "not_json", "no_messages", "digits", "digits_later", "nested", "nested_first"],
)
def test_a_bad_file_is_one_line_with_its_place_and_leaves_nothing(
    content: str | None, words: str, tmp_path: Path
) -> None:
    source = tmp_path / "in.jsonl"
    if content is not None:
        source.write_text(content)
    (tmp_path / "out.jsonl").write_text("from before")
    done = compact(source, tmp_path / "out.jsonl", "--tokenizer", TOKENIZER)
    assert done.exit_code == 2
    assert words in done.stderr and done.stderr.strip().count("\n") == 0
    assert (tmp_path / "out.jsonl").read_text() == "from before"
    assert {path.name for path in tmp_path.iterdir()} <= {"in.jsonl", "out.jsonl"}


@pytest.mark.parametrize("depth", range(700, 1_000, 25))
def test_a_depth_that_can_just_be_read_is_written_or_refused(depth: int, tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(f'{{"messages": [], "deep": {depth * "["}{depth * "]"}}}\n')
    done = compact(source, target, "--tokenizer", TOKENIZER)
    assert (done.exit_code, target.exists()) in ((0, True), (2, False))
    assert done.exit_code == 0 or "in.jsonl, line 1: JSON nested too deeply" in done.stderr


def test_a_lone_surrogate_comes_back_as_it_was_and_other_lines_stay_readable(tmp_path: Path) -> None:
    odd = [{**message, "content": "\ud800 " + message["content"]} for message in CHAT]
    plain = {"messages": [{"role": "user", "content": "é"}]}
    source = write(tmp_path / "in.jsonl", {"id": "\ud800", "messages": odd}, plain)
    done = compact(source, tmp_path / "out.jsonl", "--tokenizer", TOKENIZER)
    assert done.exit_code == 0, done.output
    first, _ = lines(tmp_path / "out.jsonl")
    assert reconstruct(first["messages"]) == odd != first["messages"]
    assert "é" in (tmp_path / "out.jsonl").read_text(encoding="utf-8")


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    source = write(tmp_path / "in.jsonl", {"messages": CHAT})
    done = compact(source, tmp_path / "nowhere" / "out.jsonl", "--tokenizer", TOKENIZER)
    assert done.exit_code == 2 and "out.jsonl: cannot be written" in done.stderr
