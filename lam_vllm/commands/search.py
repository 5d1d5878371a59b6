"""`lam-vllm search`: earlier tool output of a recorded run, by meaning, found here or by a server."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from lam_vllm.commands.compact import make_compactor
from lam_vllm.commands.doctor_ask import Asked, Reply
from lam_vllm.errors import OptionError
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.live.client import ServerError
from lam_vllm.serving.search_answer import MOST_QUERY_CHARACTERS, FoundWindow, SearchAnswer, SearchHit, answer_of
from lam_vllm.types import Message

ROUTE = "/v1/lam/search"
PATIENCE_SECONDS = 600.0
"""For a server that has not seen the run yet, and embeds all of it."""
SHOWN_CHARACTERS = 60
SHOWN_DROPPED = 3


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and how many windows may answer it. `flags` are options that were given, None those that were
    not."""

    query: str
    k: int
    flags: dict[str, Any]


def search_here(run: Run, question: Question, encoder: str | None, tokenizer: str | None) -> SearchAnswer:
    """The answer out of this process.

    Raises:
        OptionError: no encoder is named, the query is empty or too long, an option has a value that it cannot have, or
            the profile embeds nothing.
        MissingExtraError: the encoder needs an extra that is not installed.
        EncoderError: the encoder cannot be loaded, or failed.
    """
    if encoder is None:
        raise OptionError("encoder", None, "one that embeds the run, such as minilm; or ask a server: --url")
    if not 1 <= len(question.query) <= MOST_QUERY_CHARACTERS:
        given = f"{len(question.query)} characters"
        raise OptionError("query", given, f"1 to {MOST_QUERY_CHARACTERS} characters")
    compactor, _ = make_compactor(question.flags, None, encoder, tokenizer)
    return answer_of(compactor.search(list(run.messages), question.query, question.k))


def search_there(run: Run, question: Question, url: str, api_key: str | None) -> SearchAnswer:
    """The answer of a server.

    Raises:
        OptionError: the URL is not one of HTTP.
        ServerError: the server cannot be reached, refuses, or answers something else.
    """
    options = {name: value for name, value in question.flags.items() if value is not None}
    body = {"query": question.query, "k": question.k, "messages": list(run.messages), "lam": options or None}
    asked = Asked(url, api_key, PATIENCE_SECONDS)
    reply = asked.ask(ROUTE, body)
    try:
        if reply.status == 200:
            return SearchAnswer.model_validate(reply.json)
    except ValidationError:
        pass
    raise ServerError(f"{asked.url}{ROUTE}: {_why(reply)}", reply.status)


def as_json(answer: SearchAnswer) -> str:
    """The answer as a server would give it, in ASCII: text may hold what UTF-8 has no place for."""
    return json.dumps(answer.model_dump(), indent=2)


def table(answer: SearchAnswer, query: str, messages: Sequence[Message]) -> Table:
    """The hits, best first: where each stands, a line of it, and what it stands for beside itself."""
    made = Table(title=_title(answer), box=SIMPLE_HEAD, pad_edge=False)
    for name in ("score", "within", "result", "message", "lines"):
        made.add_column(name, justify="right")
    made.add_column("one of them", overflow="fold")
    made.add_column("stands for", overflow="fold")
    words = _words(query)
    for hit in answer.hits:
        lines = _lines(hit, messages)
        cells = (f"{hit.score:.3f}", f"{hit.certificate.total:.3f}", str(hit.result), str(hit.message), lines)
        made.add_row(*cells, _printable(_excerpt(hit.text or "", words)), _printable(_dropped(hit, messages)))
    return made


def _title(answer: SearchAnswer) -> str:
    """What was searched, and what could not be."""
    title = f"{answer.windows:,} windows of tool output"
    if answer.missing:
        title += f", {answer.missing:,} of them kept no longer"
    if answer.uncovered_characters:
        title += f"; {answer.uncovered_characters:,} characters are in none"
    return title


def _why(reply: Reply) -> str:
    if reply.status == 200:
        return "this is no answer to a search"
    return _printable(f"{reply.status}: {reply.text[:500]}" if reply.status else reply.text).plain


def _excerpt(text: str, words: frozenset[str]) -> str:
    """The line with most of these words, the first of equal ones: results often begin alike."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    best = max(lines, key=lambda line: len(words & _words(line)), default="")
    return best if len(best) <= SHOWN_CHARACTERS else best[: SHOWN_CHARACTERS - 1] + "…"


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w{3,}", text.lower()))


def _dropped(hit: SearchHit, messages: Sequence[Message]) -> str:
    shown = [f"result {each.result} lines {_lines(each, messages)}" for each in hit.dropped[:SHOWN_DROPPED]]
    more = len(hit.dropped) - len(shown)
    return "; ".join([*shown, f"{more} more"] if more > 0 else shown)


def _lines(window: FoundWindow, messages: Sequence[Message]) -> str:
    """The lines of its text, from 1, that the window covers."""
    try:
        content = messages[window.message]["content"]
        text = content if window.part is None else content[window.part]["text"]
        first = 1 + text.count("\n", 0, window.start)
        last = first + text.count("\n", window.start, max(window.start, window.end - 1))
    except (LookupError, TypeError, AttributeError):  # a server may say anything
        return "?"
    return str(first) if first == last else f"{first}-{last}"


def _printable(text: str) -> Text:
    """Text for a terminal: control characters are shown and not obeyed, and nothing is markup."""
    return Text("".join(each if each.isprintable() else ascii(each)[1:-1] for each in text))
