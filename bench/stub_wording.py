"""Which words a reference should use: questions whose answer stands only behind one, asked of a served model.

The questions come from the recorded runs (wording_questions.py, wording_aliases.py) and are asked with the plugin off,
and with its references printed in several wordings (wordings.py). Decoding is greedy; every answer becomes a row of
results/stub_wording_answers.jsonl, and what is there is not asked again. Where the server has the plugin, the prompt it
makes of the original messages is compared, token by token, with that of the plugin's own wording sent as text (the
option `directory_aliases` is none of a request: what it prints is sent as text only).

Without --url a server of the packaged model is started here, on one core. On your own model:

    python bench/stub_wording.py --url http://HOST:PORT --tokenizer MODEL

Prints tables and their figures as one line of JSON, which goes to results/stub_wording.json for the packaged model, and
beside the rows for another (--rows). A small model answers few of the questions: read the intervals.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from corpus_data import SERVED_MODEL, corpus_runs, machine
from wording_aliases import ALIAS_WORDINGS, alias_questions, realiased
from wording_answers import Asking, Row, Server, answers, keep_only
from wording_lengths import alias_removal, stub_tokens
from wording_questions import Question, TokenCounter, stub_questions
from wording_report import print_tables
from wording_server import cpu_server
from wording_table import OFF, accuracy, compared
from wordings import WORDINGS, references_of, reworded

from lam_vllm import Compaction, Compactor, CompactorConfig
from lam_vllm.commands.tokenizer import load_token_counter
from lam_vllm.errors import LamError

ROWS = Path(__file__).parent / "results" / "stub_wording_answers.jsonl"
MARK_CHARACTERS = 12
"""An answer that holds so much of the beginning of a reference has copied it."""


def askings(question: Question, count_tokens: TokenCounter) -> list[Asking]:
    """The question with the plugin off, and in each wording; the second is the plugin's own."""
    aliases = question.kind == "alias"
    compactor = Compactor(CompactorConfig(profile="exact", directory_aliases=aliases), count_tokens)
    compaction = compactor.compact(question.messages)
    asked = list((_with_short_names if aliases else _with_references)(question, compaction))
    if asked[0].messages != list(compaction.messages):
        raise LamError(f"{question.id}: the plugin's wording is not printed as the plugin prints it")
    return [Asking(question, OFF, question.messages), *asked]


def _with_short_names(question: Question, compaction: Compaction) -> Iterator[Asking]:
    for name, wording in ALIAS_WORDINGS.items():
        yield Asking(question, name, realiased(compaction.messages, wording), wording.short_names())


def _with_references(question: Question, compaction: Compaction) -> Iterator[Asking]:
    references = [placed.reference for placed in references_of(question.messages, compaction)]
    for name, wording in WORDINGS.items():
        marks = [wording(reference)[:MARK_CHARACTERS] for reference in references]
        yield Asking(question, name, reworded(question.messages, compaction, wording), list(filter(None, marks)))


def check_prompts(server: Server, asked: Sequence[list[Asking]]) -> int:
    """How many prompts of the plugin, made of the original messages, are those of its wording sent as text: all.

    Raises:
        LamError: one is not; names the question.
    """
    for off, own, *_ in asked:
        if server.prompt(off, {"profile": "exact"}) != server.prompt(own, None):
            raise LamError(f"{own.question.id}: the server's prompt differs; is --tokenizer that of the served model?")
    return len(asked)


def figures(questions: Sequence[Question], rows: Sequence[Row], lengths: dict[str, float]) -> dict[str, Any]:
    """The figures of one set of questions; its first wording is the plugin's own."""
    own = next(iter(lengths))
    return {
        "accuracy": accuracy(questions, rows, lengths),
        "against_own": {name: compared(questions, rows, own, name) for name in lengths if name != own},
        "lengths": lengths,
    }


def measure(server: Server, count_tokens: TokenCounter, rows_file: Path) -> dict[str, Any]:
    """All figures for the server's model."""
    runs = corpus_runs()
    sets = {"references": stub_questions(runs, count_tokens), "aliases": alias_questions(runs, count_tokens)}
    asked = {name: [askings(question, count_tokens) for question in questions] for name, questions in sets.items()}
    checked = check_prompts(server, asked["references"]) if server.has_plugin() else 0
    rows = {name: answers(server, (one for each in some for one in each), rows_file) for name, some in asked.items()}
    keep_only([row for some in rows.values() for row in some], rows_file)
    return {
        "model": server.model,
        "setup": machine(),
        "prompts_equal_to_the_plugin's": checked,
        "references": figures(sets["references"], rows["references"], stub_tokens(runs, count_tokens)),
        "aliases": figures(sets["aliases"], rows["aliases"], alias_removal(runs, count_tokens)),
    }


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the server is stopped then too
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="a running vLLM server; without it one is started here")
    parser.add_argument("--model", help="the name of the model there; without it the first that is served")
    parser.add_argument("--tokenizer", default=str(SERVED_MODEL), help="that model's tokenizer")
    parser.add_argument("--rows", type=Path, default=ROWS, help="the file that keeps the answers")
    arguments = parser.parse_args()
    try:
        with nullcontext(arguments.url) if arguments.url else cpu_server() as url:
            server = Server(url, arguments.model, os.environ.get("OPENAI_API_KEY"))
            measured = measure(server, load_token_counter(arguments.tokenizer), arguments.rows)
    except LamError as error:
        print(f"stub_wording: {error}", file=sys.stderr)
        return 2
    print_tables(measured)
    line = json.dumps(measured, ensure_ascii=False)
    arguments.rows.with_name(arguments.rows.stem.removesuffix("_answers") + ".json").write_text(
        line + "\n", encoding="utf-8"
    )
    print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
