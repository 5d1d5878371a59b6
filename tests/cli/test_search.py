"""`lam-vllm search`: in this process, and what it makes of what a server says. tests/server has it with a real one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from typer.testing import CliRunner, Result

from lam_vllm.cli import app
from lam_vllm.commands.search import table
from lam_vllm.serving.search_answer import MOST_QUERY_CHARACTERS, SearchAnswer
from tests.cli.listening import KEY, guarded_by_key, listening
from tests.serving.fakes import Server, agent_messages
from tests.serving.searched import BUILD_AGAIN, DATABASE, QUESTION, RESULT, conversation, message_of

NOBODY = "http://127.0.0.1:1"
WINDOW = {"message": 2, "part": None, "result": 1, "start": 0, "end": 10}
HIT = {
    **WINDOW,
    "score": 0.5,
    "text": "\x1b[31mred[/red]\n",
    "certificate": {"delta_hat": 0.0, "codec_error": 0.1, "embedding_error": 0.0, "rounding": 0.0, "total": 0.1},
    "dropped": [{**WINDOW, "distance": 0.0}] * 5,
}
ANSWER = {
    "hits": [HIT],
    "windows": 9,
    "missing": 2,
    "prefix_digest": "0",
    "encoder": "e",
    "eps": 0.1,
    "uncovered_characters": 7_000,
}


def search(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["search", *arguments], env={"COLUMNS": "250", "LAM_API_KEY": ""})


@pytest.fixture
def runs(tmp_path: Path) -> str:
    """Two runs, of which the second has the answer."""
    path = tmp_path / "runs.jsonl"
    documents = ({"id": "one", "messages": agent_messages("short")}, {"id": "two", "messages": conversation()})
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return str(path)


def printed(done: Result) -> dict[str, Any]:
    assert done.exit_code == 0, done.output
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_result_is_found_by_its_meaning_and_told_in_a_table(runs: str) -> None:
    done = search(runs, QUESTION, "--run", "two", "--encoder", "minilm", "-k", "2")
    assert done.exit_code == 0, done.output
    title, _, _, _, best, *_ = done.stdout.splitlines()
    assert "4 windows of tool output" in title
    assert best.split()[2:5] == [str(RESULT), str(message_of(RESULT)), "1-4"]
    assert "listens on port 5433" not in best and "The database runs on the host" in best


def test_json_is_the_answer_of_the_route(runs: str) -> None:
    answer = printed(search(runs, QUESTION, "--run", "two", "--encoder", "minilm", "--profile", "paper", "--json"))
    assert SearchAnswer.model_validate(answer).model_dump() == answer
    assert answer["hits"][0]["text"] == DATABASE
    (dropped,) = [each for hit in answer["hits"] for each in hit["dropped"]]
    assert BUILD_AGAIN[dropped["start"] : dropped["end"]] == BUILD_AGAIN


def test_a_run_without_tool_output_has_nothing_to_be_found(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_text(json.dumps({"messages": [{"role": "user", "content": DATABASE}]}) + "\n")
    assert printed(search(str(path), QUESTION, "--encoder", "minilm", "--json"))["hits"] == []
    done = search(str(path), QUESTION, "--encoder", "minilm")
    assert (done.exit_code, "0 windows of tool output" in done.stdout) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "encoder: None is not allowed"),
        (("--encoder", "/nowhere"), "/nowhere"),
        (("--encoder", "minilm", "--profile", "exact"), "profile: 'exact' is not allowed; allowed: guarded, paper"),
        (("--encoder", "minilm", "--profile", "best"), "profile: 'best' is not allowed"),
        (("--run", "three"), "no run has the id 'three'"),
        (("--url", "localhost:8000"), "url: 'localhost:8000' is not allowed"),
        (("--url", NOBODY), f"{NOBODY}/v1/lam/search: [Errno"),
    ],
)
def test_a_question_that_cannot_be_asked_is_one_line_and_exit_code_2(
    runs: str, arguments: tuple[str, ...], words: str
) -> None:
    done = search(runs, QUESTION, *arguments)
    assert done.exit_code == 2
    told = done.stderr.rstrip("\n").rpartition("\n")[2]  # above it a library says that it loads an encoder
    assert told.startswith("lam-vllm: ") and words in told
    assert "Traceback" not in done.output


@pytest.mark.parametrize("characters", [0, MOST_QUERY_CHARACTERS + 1])
def test_a_query_that_a_server_refuses_is_refused_here_too(runs: str, characters: int) -> None:
    done = search(runs, "x" * characters, "--encoder", "minilm")
    assert done.exit_code == 2
    assert f"query: '{characters} characters' is not allowed; allowed: 1 to 8192 characters" in done.stderr


@pytest.mark.parametrize("k", ["0", "101", "ten"])
def test_a_number_of_windows_that_no_server_shows_is_refused(runs: str, k: str) -> None:
    done = search(runs, QUESTION, "-k", k)
    assert done.exit_code == 2 and "-k" in done.stderr


@pytest.fixture
def server_without_encoder() -> Iterator[str]:
    with listening(guarded_by_key(Server().app())) as url:
        yield url


def test_what_a_server_refuses_is_told_in_its_words(runs: str, server_without_encoder: str) -> None:
    refused = search(runs, QUESTION, "--url", server_without_encoder, "--api-key", KEY)
    assert refused.exit_code == 2
    assert f"{server_without_encoder}/v1/lam/search: 400: " in refused.stderr and "--lam-encoder" in refused.stderr
    assert ": 401: " in search(runs, QUESTION, "--url", server_without_encoder).stderr


def answering(answer: Any) -> FastAPI:
    """A server of somebody else, which answers this whatever it is asked."""

    async def route(request: Request) -> Any:
        await request.body()
        return answer

    other = FastAPI()
    other.add_api_route("/v1/lam/search", route, methods=["POST"], response_model=None)
    return other


def test_the_options_that_were_given_are_sent_and_no_others(runs: str) -> None:
    bodies: list[Any] = []

    async def route(body: dict[str, Any]) -> dict[str, Any]:
        bodies.append(body)
        return ANSWER

    other = FastAPI()
    other.add_api_route("/v1/lam/search", route, methods=["POST"])
    with listening(other) as url:
        assert printed(search(runs, QUESTION, "--url", url, "--run", "two", "-k", "3", "--json")) == ANSWER
        printed(search(runs, QUESTION, "--url", url, "--profile", "paper", "--observations", "tool+user", "--json"))
    assert bodies[0] == {"query": QUESTION, "k": 3, "messages": conversation(), "lam": None}
    assert bodies[1]["lam"] == {"profile": "paper", "observations": "tool+user"}


@pytest.mark.parametrize(
    "answer",
    [
        PlainTextResponse("<h1>on a break</h1>"),
        PlainTextResponse("[" * 200_000),
        Response("[]", media_type="application/json"),
        {**ANSWER, "hits": [{**HIT, "certificate": None}]},
        {},
    ],
    ids=["no JSON", "deep", "no object", "no certificate", "nothing"],
)
def test_an_answer_that_is_none_is_an_error_in_one_line(runs: str, answer: Any) -> None:
    with listening(answering(answer)) as url:
        done = search(runs, QUESTION, "--url", url)
    assert (done.exit_code, done.stderr) == (2, f"lam-vllm: {url}/v1/lam/search: this is no answer to a search\n")


def test_what_a_server_says_is_shown_and_not_obeyed(runs: str) -> None:
    refusal = PlainTextResponse("\x1b[2J no", 503)
    with listening(answering(ANSWER)) as url, listening(answering(refusal)) as refusing:
        done = search(runs, QUESTION, "--url", url)
        refused = search(runs, QUESTION, "--url", refusing)
    assert (done.exit_code, refused.exit_code) == (0, 2)
    assert "\x1b[31m" not in done.stdout and "\\x1b[31mred[/red]" in done.stdout
    assert "9 windows of tool output, 2 of them kept no longer; 7,000 characters are in none" in done.stdout
    assert "2 more" in done.stdout
    assert "\x1b[2J" not in refused.stderr and "503: \\x1b[2J no" in refused.stderr


def test_a_place_that_the_run_does_not_have_is_a_question_mark() -> None:
    places = ({"message": 99}, {"part": 3}, {"message": 0, "part": 0})
    hits = [{**HIT, "dropped": [], **place} for place in places]
    rows = table(SearchAnswer.model_validate({**ANSWER, "hits": hits}), QUESTION, conversation())
    assert list(rows.columns[4].cells) == ["?", "?", "?"]
