"""Recorded runs out of the files in which agents leave them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Any

from lam_vllm.errors import InputFileError
from lam_vllm.evaluation.documents import read_documents, refuse
from lam_vllm.evaluation.readers.chat import read_chat
from lam_vllm.evaluation.readers.claude_code import read_session
from lam_vllm.evaluation.readers.claude_entries import is_session_entry
from lam_vllm.evaluation.readers.hub import files_of, is_dataset, read_dataset
from lam_vllm.evaluation.readers.responses import read_responses
from lam_vllm.evaluation.readers.run import Run, make_run
from lam_vllm.evaluation.readers.swe_agent import read_mini_swe_agent, read_swe_agent, read_swe_smith
from lam_vllm.evaluation.readers.terminal import read_terminal

__all__ = ["Run", "distinct", "find_run", "read_all", "read_runs"]

_READERS: dict[str, Callable[[Any], Any]] = {
    "swe-agent": read_swe_agent,
    "mini-swe-agent": read_mini_swe_agent,
    "swe-smith": read_swe_smith,
    "responses": read_responses,
    "terminal": read_terminal,
    "messages": read_chat,
}
"""By the source that runs of this form have where they name none; the first that finds messages is right."""


def read_runs(path: str | Path) -> Iterator[Run]:
    """The runs of a file, of the files in a folder, or of a data set, in order, read as they are asked for.

    A file holds one of these, or one a line, plain or xz: an object with `messages` (such as the corpus has); a list
    of OpenAI messages; a SWE-agent trajectory (`history`, or `trajectory` alone); a mini-swe-agent trajectory; items
    of the Responses API, as a list or under `input` and `output`; a terminal agent's trajectory (ATIF). Or it is a
    session log of Claude Code. A data set is named as `read_dataset` says, and its rows have one of these forms.

    Raises:
        InputFileError: as `read_documents` and `read_dataset`, or a value is none of these; names the line.
        MissingExtraError: a data set is named, and the library `datasets` is not installed.
    """
    for file in files_of(path):
        yield from _runs(file, refuse)


def read_all(names: Iterable[str | Path], on_skip: Callable[[InputFileError], None]) -> Iterator[Run]:
    """The runs of several files, folders or data sets; what cannot be read goes to `on_skip` once, and the rest comes.

    Of a Claude Code log only the lines that cannot be read are left out.

    Raises:
        MissingExtraError: as `read_runs`.
    """
    for name in chain.from_iterable(map(files_of, names)):
        try:
            yield from _runs(name, on_skip)
        except InputFileError as error:  # the whole file, or all that was left of it
            on_skip(error)


def distinct(runs: Iterable[Run]) -> Iterator[Run]:
    """The runs, each with an id that none before it of its source has: the second of a name is called `NAME#2`."""
    taken: set[tuple[str, str]] = set()
    for run in runs:
        names = chain([run.id], (f"{run.id}#{number}" for number in count(2)))
        name = next(name for name in names if (run.source, name) not in taken)
        taken.add((run.source, name))
        yield replace(run, id=name)


def find_run(path: str | Path, run_id: str | None) -> Run:
    """The run with this id, or the first when None is asked for.

    Raises:
        InputFileError: as `read_runs`, or no run has this id.
    """
    try:
        for run in read_runs(path):
            if run_id in (None, run.id):
                return run
    except InputFileError as error:
        if error.line is None:
            raise
        raise InputFileError(error.path, f"{error.why} (analyze and eval skip such runs)", error.line) from None
    raise InputFileError(path, f"no run has the id {run_id!r}")


def _runs(path: str | Path, on_skip: Callable[[InputFileError], None]) -> Iterator[Run]:
    documents = read_dataset(path) if is_dataset(path) else read_documents(path, on_skip)
    first = next(documents, None)
    if first is None:  # what there was has been reported
        return
    documents = chain([first], documents)
    if is_session_entry(first[1]):
        yield from read_session(Path(path), documents, on_skip)
        return
    for line, document in documents:
        try:
            run = _run(path, line, document)
        except InputFileError as error:
            on_skip(error)
        else:
            yield run


def _run(path: str | Path, line: int, document: Any) -> Run:
    fields = document if isinstance(document, dict) else {}
    for source, read in _READERS.items():
        try:
            messages = read(document)
        except ValueError as error:
            raise InputFileError(path, f"expected a run of the form {source!r}: {error}", line) from None
        if messages is not None:
            return make_run(path, line, messages, fields, source)
    return make_run(path, line, None, fields, "")
