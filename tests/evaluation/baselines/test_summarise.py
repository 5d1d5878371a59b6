"""Summaries, against a small HTTP server that speaks the protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from lam_vllm.errors import OptionError
from lam_vllm.evaluation.baselines.summarise import Summaries
from lam_vllm.evaluation.baselines.unavailable import BaselineUnavailableError
from lam_vllm.evaluation.live.client import ServerError
from tests.evaluation.baselines.hand_made import count_words, results_of, run_of

LONG = "\n".join(f"line {number} says something" for number in range(40))


class Model(ThreadingHTTPServer):
    """Answers with the first words of the text that it was given, as many as `max_tokens` allows."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.refuses = False
        self.repeats = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Model

    def do_GET(self) -> None:
        self._answer(
            200, {"object": "list", "data": [{"id": "small", "object": "model", "created": 0, "owned_by": "me"}]}
        )

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append({"path": self.path, **body})
        self.server.keys.append(self.headers["Authorization"])
        if self.server.refuses:
            self._answer(400, {"error": {"message": "the prompt is too long", "code": 400}})
            return
        text = body["messages"][0]["content"].partition("\n\n")[2]
        words = text if self.server.repeats else " ".join(text.split()[: body["max_tokens"]])
        message = {"role": "assistant", "content": words}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self._answer(200, {"id": "1", "object": "chat.completion", "created": 0, "model": "small", "choices": [choice]})

    def _answer(self, status: int, document: Any) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def model() -> Iterator[Model]:
    with Model() as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_long_result_becomes_a_summary_within_its_share_and_a_short_one_stays(model: Model) -> None:
    method = Summaries(0.1, model.url, count_words, api_key="secret")
    summary, short = results_of(method.shorten(run_of(LONG, "ok")))
    assert count_words(LONG) == 199
    assert summary == " ".join(LONG.split()[:20])  # a tenth of 199 tokens, rounded up
    assert short == "ok"
    (asked,) = model.asked
    assert (asked["path"], asked["model"]) == ("/v1/chat/completions", "small")
    assert (asked["max_tokens"], asked["temperature"], asked["seed"]) == (20, 0.0, 0)
    assert model.keys == ["Bearer secret"]


def test_a_giant_result_is_summarised_in_pieces_of_whole_lines(model: Model) -> None:
    giant = "\n".join(f"line {number} says something" for number in range(900))  # 5 tokens a line, 2,000 a piece
    (summary,) = results_of(Summaries(0.1, f"{model.url}/v1", count_words, model="named").shorten(run_of(giant)))
    assert [asked["max_tokens"] for asked in model.asked] == [200, 200, 50]
    assert {asked["model"] for asked in model.asked} == {"named"}
    assert [line.split()[1] for line in summary.split("\n")] == ["0", "400", "800"]


def test_a_giant_line_is_cut(model: Model) -> None:
    line = "word " * 2_000  # 10,000 characters, 2,000 tokens
    Summaries(0.1, model.url, count_words).shorten(run_of(line))
    assert [len(asked["messages"][0]["content"].partition("\n\n")[2]) for asked in model.asked] == [8_001, 2_000]


def test_a_summary_that_is_no_shorter_is_not_used_and_counted(model: Model) -> None:
    model.repeats = True
    method = Summaries(0.1, model.url, count_words)
    assert results_of(method.shorten(run_of(LONG))) == [LONG]
    assert method.kept_pieces == 1


def test_what_the_server_refuses_is_passed_on(model: Model) -> None:
    model.refuses = True
    with pytest.raises(ServerError, match="the prompt is too long") as caught:
        Summaries(0.1, model.url, count_words).shorten(run_of(LONG))
    assert caught.value.status == 400


def test_a_server_that_is_not_there_makes_the_baseline_unavailable(model: Model) -> None:
    url = model.url
    model.server_close()
    with pytest.raises(BaselineUnavailableError, match=f"no summaries: {url}"):
        Summaries(0.1, url, count_words)


def test_new_text_is_not_judged_by_lines(model: Model) -> None:
    assert not Summaries(0.1, model.url, count_words).verbatim


@pytest.mark.parametrize(("ratio", "url", "names"), [(1.0, "http://x", "summary ratio"), (0.1, "x:80", "summary url")])
def test_options_out_of_range_are_refused(ratio: float, url: str, names: str) -> None:
    with pytest.raises(OptionError, match=names):
        Summaries(ratio, url, count_words)
