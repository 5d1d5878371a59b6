"""bench/agent_quality.py: figures of recorded attempts, their intervals, and its own small agent."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from lam_vllm import Compactor, make_config
from lam_vllm.errors import InputFileError
from lam_vllm.evaluation.corpus import Run
from lam_vllm.types import Message

sys.path.append(str(Path(__file__).parents[2] / "bench"))  # the benchmarks import one another by name

from agent_attempts import Attempt, Rereading, Usage, read_attempts, rereading, usage_of
from agent_loop import Model, Task, attempt, read_tasks
from agent_report import (
    MEASURES,
    bootstrap,
    by_task,
    difference,
    figures,
    print_report,
    reread_rate,
    success_rate,
)
from agent_shell import CHARACTERS, hand_over, run_shell, shortened

FILE = "\n".join(f"value_{n} = compute(first_argument, argument_{n}, timeout={n * 3})" for n in range(24))
HALF = "\n".join(FILE.split("\n")[:12])
LESS = "\n".join(FILE.split("\n")[:11])


def run_of(*results: str) -> Run:
    messages: list[Message] = [{"role": "user", "content": "Please look."}]
    for result in results:
        messages += [{"role": "assistant", "content": "I look."}, {"role": "tool", "content": result}]
    return Run("run", "made", tuple(messages))


def exact() -> Compactor:
    return Compactor(make_config({"profile": "exact"}), lambda text: len(text) // 4)


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ((FILE, FILE), Rereading(0, 0)),
        ((FILE, FILE, "done"), Rereading(1, 0)),
        ((FILE, FILE, FILE, "done"), Rereading(2, 1)),
        ((FILE, FILE, "looks", "at", HALF, "done"), Rereading(2, 0)),
        ((FILE, FILE, "looks", HALF, "done"), Rereading(2, 1)),
        ((FILE, FILE, "looks", LESS, "done"), Rereading(2, 0)),
    ],
    ids=["no turn after", "never", "at once", "too late", "half of it in time", "less than half"],
)
def test_a_removed_span_is_read_again_where_half_of_its_lines_come_back_within_two_turns(
    results: tuple[str, ...], expected: Rereading
) -> None:
    assert rereading(run_of(*results), exact(), within_turns=2) == expected


def test_lines_are_read_again_whatever_their_numbers() -> None:
    numbered = "\n".join(f"{n:6}\t{line}" for n, line in enumerate(FILE.split("\n"), 5))
    assert rereading(run_of(FILE, FILE, numbered), exact(), within_turns=1) == Rereading(1, 1)


def test_counts_of_tokens_are_found_where_servers_and_agents_leave_them() -> None:
    chat = {"prompt_tokens": 90, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 64}}
    mini = {"messages": [{"role": "assistant", "extra": {"response": {"id": f"c{n}", "usage": chat}}} for n in (1, 2)]}
    assert usage_of(mini) == Usage(180, 14, 128)
    message = {"id": "m1", "usage": {"input_tokens": 5, "output_tokens": 3, "cache_read_input_tokens": 40}}
    log = [{"type": "assistant", "message": message}, {"type": "assistant", "message": message}]
    assert usage_of(log) == Usage(5, 3, 40)
    assert usage_of({"messages": [{"role": "user", "content": "usage"}]}) == Usage()


def test_attempts_of_a_file_have_the_task_of_their_id_and_the_outcome_of_the_judge(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    usages = [{"usage": {"prompt_tokens": 10, "completion_tokens": 2}}]
    runs = [
        {"id": "count#0", "messages": run_of(FILE).messages, "resolved": True, "usages": usages},
        {"id": "count#1", "messages": run_of(FILE, "failed", "end").messages, "resolved": None},
    ]
    path.write_text("".join(json.dumps(run) + "\n" for run in runs), encoding="utf-8")
    first, second = read_attempts([path], None, None, 3)
    assert first == Attempt("count", True, 1, Usage(10, 2))
    assert second == Attempt("count", None, 3)
    judged = read_attempts([path], "! grep -q failed", exact(), 3)
    assert [one.success for one in judged] == [True, False]
    assert judged[0].rereading == Rereading()


def test_one_recorded_session_in_many_lines_is_one_attempt(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    message = {"id": "m1", "role": "assistant", "content": "Hm.", "usage": {"input_tokens": 5, "output_tokens": 3}}
    entries = [
        {
            "type": "user",
            "sessionId": "s",
            "uuid": "1",
            "parentUuid": None,
            "message": {"role": "user", "content": "Hi"},
        },
        {"type": "assistant", "sessionId": "s", "uuid": "2", "parentUuid": "1", "message": message},
    ]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    (one,) = read_attempts([path], "true", None, 3)
    assert (one.turns, one.usage) == (1, Usage(5, 3))


def attempts(task: str, *successes: bool) -> list[Attempt]:
    return [Attempt(task, success, 4) for success in successes]


def test_tasks_that_one_arm_lacks_are_left_out() -> None:
    tasks = by_task(attempts("a", True) + attempts("b", True), attempts("b", False, True))
    assert {task: (len(off), len(on)) for task, (off, on) in tasks.items()} == {"b": (1, 2)}


def test_the_interval_is_a_point_where_every_task_says_the_same() -> None:
    same = [(attempts(task, False, False), attempts(task, True, True)) for task in "abc"]
    assert difference(same, success_rate) == 1.0
    assert bootstrap(same, success_rate) == (1.0, 1.0)


def test_the_interval_draws_tasks_and_not_attempts() -> None:
    tasks = [(attempts(str(n), *[False] * 50), attempts(str(n), *[n % 2 == 0] * 50)) for n in range(8)]
    low, high = bootstrap(tasks, success_rate) or (0.0, 0.0)
    assert difference(tasks, success_rate) == 0.5
    # Four of eight tasks: the 2.5% and 97.5% points of a binomial of 8 draws at one half are 1 and 7.
    assert (low, high) == pytest.approx((0.125, 0.875), abs=0.126)
    assert bootstrap(tasks, success_rate) == (low, high)


def test_what_is_not_recorded_has_no_interval(capsys: pytest.CaptureFixture[str]) -> None:
    report = figures(attempts("a", True), attempts("a", False, True))
    assert report["attempts"] == [1, 2]
    assert report["measures"].keys() == MEASURES.keys()
    tokens = report["measures"]["cached_tokens"]
    assert (tokens["off"], tokens["difference"], tokens["interval_95"]) == (None, None, None)
    success = report["measures"]["success_rate"]
    assert (success["off"], success["on"], success["difference"]) == (1.0, 0.5, -0.5)
    assert success["wilson_95"][1] == pytest.approx((0.0945, 0.9055), abs=1e-4)  # one of two
    print_report(report)
    printed = capsys.readouterr().out
    assert "FEWER THAN 10 TASKS" in printed
    assert "| cached tokens | not recorded | not recorded | not recorded | - |" in printed


def test_the_rate_of_second_reads_is_over_spans() -> None:
    arm = [Attempt("a", None, 1, rereading=found) for found in (Rereading(9, 1), Rereading(1, 1), None)]
    assert reread_rate(arm) == 0.2
    assert reread_rate(arm[2:]) is None


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:  # whoever is not root cannot look into pytest's own
        hand_over(Path(name))
        yield Path(name)


def test_a_command_runs_in_its_folder_with_its_status_and_both_outputs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    assert run_shell("echo one > a; cat a; echo two >&2; exit 3", folder) == (3, "one\ntwo\n")
    assert (folder / "a").read_text(encoding="utf-8") == "one\n"
    assert run_shell("cat", folder) == (0, "")
    assert "OPENAI" not in run_shell("env", folder)[1]


def test_a_command_that_takes_too_long_is_stopped_with_what_it_started(folder: Path) -> None:
    status, output = run_shell("(sleep 60; echo late > late) & echo begun; sleep 60", folder, seconds=0.5)
    assert (status, output) == (124, "begun\n")


def test_long_output_loses_its_middle_and_says_so() -> None:
    text = shortened("a" * CHARACTERS + "b" * CHARACTERS)
    assert text == f"{'a' * (CHARACTERS // 2)}\n... {CHARACTERS} characters left out ...\n{'b' * (CHARACTERS // 2)}"
    assert shortened("a" * CHARACTERS) == "a" * CHARACTERS


@pytest.fixture
def scripted() -> Iterator[tuple[str, list[dict[str, Any]], list[str]]]:
    """A server that answers with what the test puts into the last list, and keeps every request."""
    asked: list[dict[str, Any]] = []
    replies: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append({**body, "x-lam": self.headers["x-lam"]})
            reply = replies.pop(0)
            too_long = reply == "too long"
            usage = {"prompt_tokens": len(body["messages"]), "completion_tokens": 1}
            answer = {"choices": [{"message": {"content": reply}}], "usage": usage}
            text = json.dumps({"error": "over the maximum context length"} if too_long else answer).encode()
            self.send_response(400 if too_long else 200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *arguments: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked, replies
        server.shutdown()
        thread.join()


TASK = Task("greet", "Write hello into answer.txt.", "grep -qx hello answer.txt", {"in/note.txt": "hello\n"})


def test_the_agent_runs_each_block_and_ends_without_one(
    scripted: tuple[str, list[dict[str, Any]], list[str]], tmp_path: Path
) -> None:
    url, asked, replies = scripted
    replies += ["I look.\n```bash\ncat in/note.txt\n```", "```bash\ncp in/note.txt answer.txt\n```", "Done."]
    run = attempt(TASK, Model(url, "model"), '{"enabled": true}', seed=4)
    assert (run["ended"], run["resolved"], run["id"]) == ("done", True, "greet#4")
    assert [message["role"] for message in run["messages"]] == [
        "system",
        "user",
        *["assistant", "tool"] * 2,
        "assistant",
    ]
    assert run["messages"][3]["content"] == "exit status 0\nhello\n"
    assert [message["role"] for message in asked[-1]["messages"]] == ["system", "user", *["assistant", "user"] * 2]
    assert {(one["x-lam"], one["seed"]) for one in asked} == {('{"enabled": true}', 4)}
    assert len({one["cache_salt"] for one in asked}) == 1
    path = tmp_path / "on.jsonl"
    path.write_text(json.dumps(run) + "\n", encoding="utf-8")
    assert read_attempts([path], None, None, 3) == [Attempt("greet", True, 3, Usage(12, 3))]


@pytest.mark.parametrize(
    ("said", "ended"), [(["```bash\ntrue\n```"] * 2, "turns"), (["```bash\ntrue\n```", "too long"], "context")]
)
def test_the_agent_stops_at_its_limits(
    scripted: tuple[str, list[dict[str, Any]], list[str]], said: list[str], ended: str
) -> None:
    url, _, replies = scripted
    replies += said
    run = attempt(TASK, Model(url, "model", max_turns=2), "off", seed=0)
    assert (run["ended"], run["resolved"]) == (ended, False)


def test_a_line_that_is_no_task_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"id": "a", "prompt": "b", "check": "true"}\n{"id": "a", "ask": "b"}\n', encoding="utf-8")
    with pytest.raises(InputFileError, match=r"tasks.jsonl.*2.*expected a task"):
        read_tasks(path)
    assert len(read_tasks(Path(__file__).parents[2] / "bench/agent_tasks.jsonl")) == 2
