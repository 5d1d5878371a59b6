"""What one method did to one run, as counts, and the file that keeps a row for each; every rate is made from rows."""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Generic, TypeVar

from lam_vllm.errors import InputFileError
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.method import Method


@dataclass(frozen=True, slots=True)
class Row:
    """Counts of one run under one method.

    `method` is the family (`paper`, `masking`), `setting` what was chosen in it (`t=0.95`, `k=10`; empty: there is
    nothing to choose), `seed` the seed where there is one. Tokens are the served model's, counted over whole texts of
    tool results as they came and as they are emitted, references included. Gold, line and word counts are None where
    the method writes new text, of which a verbatim measure says nothing; gold counts are 0 where the run has no patch.
    `lines_in_parts` of the readable lines are shown in parts, no longer in one line. Words are the different words of
    lines that are too long to be judged as lines.
    """

    method: str
    setting: str
    seed: int
    source: str
    run: str
    resolved: bool | None
    has_gold: bool
    observations: int
    observation_tokens: int
    emitted_tokens: int
    gold_witnessed: int
    gold_kept: int | None
    gold_relaxed: int | None
    distinct_lines: int
    readable_lines: int | None
    cpu_ms: float
    lines_in_parts: int | None = 0
    long_words: int = 0
    readable_words: int | None = 0


AnyRow = TypeVar("AnyRow", bound=Row)
Key = tuple[str, str, int, str]
"""Method, setting, seed, and the stamp of the run."""


def digest(*texts: str) -> str:
    """12 hex digits that name these texts together."""
    return hashlib.sha256("\0".join(texts).encode(errors="surrogatepass")).hexdigest()[:12]


class RowStore(Generic[AnyRow]):
    """Rows of one kind in a file, a line of JSON each behind a line of column names, appended as they are made.

    `setup` names everything beside method and run that decides a row: code, tokenizer, encoder. A row is found again
    only for the same setup and the same run, to the byte, so that rows of different origin can share a file.
    """

    def __init__(self, path: Path, setup: str, kind: type[AnyRow]) -> None:
        """Reads what the file holds, if it is there; a last line that an interruption cut short is dropped.

        Raises:
            InputFileError: the file cannot be read or written, or holds something else; names the line.
        """
        self._path, self._setup = path, setup
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or not _whole_lines(path):
                path.write_text(_line(_columns(kind)), encoding="utf-8")
            self._rows = dict(_read(path, kind))
        except OSError as error:
            raise InputFileError(path, error.strerror or str(error)) from None

    def stamp(self, run: Run, *context: str) -> str:
        """Names the run to the byte together with the setup, and with `context` where more than the run decides."""
        facts = [run.id, run.source, run.gold_patch, run.resolved, run.messages]
        return digest(self._setup, json.dumps(facts, default=repr), *context)

    def get(self, method: Method, stamp: str) -> AnyRow | None:
        """The row of this method and of the run with this stamp, or None where there is none yet."""
        return self._rows.get((method.name, method.setting, method.seed, stamp))

    def add(self, row: AnyRow, stamp: str) -> None:
        """Keeps the row, in the file before anything else happens."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(_line([stamp, *astuple(row)]))
        self._rows[row.method, row.setting, row.seed, stamp] = row


def read_rows(path: Path, kind: type[AnyRow]) -> list[AnyRow]:
    """The rows of a store's file, plain or xz; of each method, setting, seed and run the latest, whatever made it.

    Raises:
        InputFileError: the file cannot be read, or is not one of rows; names the line.
    """
    return [row for _, row in _latest(path, kind)]


def keep_latest(path: Path, kind: type[AnyRow]) -> None:
    """Writes a store's file anew, sorted, without the rows that `read_rows` passes over.

    Raises:
        InputFileError: as `read_rows`.
    """
    latest = sorted(_latest(path, kind), key=lambda pair: (pair[1].method, pair[1].setting, pair[1].seed, pair[1].run))
    fresh = path.with_suffix(".part")
    fresh.write_text("".join(map(_line, [_columns(kind), *([stamp, *astuple(row)] for stamp, row in latest)])))
    fresh.replace(path)


def _latest(path: Path, kind: type[AnyRow]) -> list[tuple[str, AnyRow]]:
    """Rows with their stamps."""
    latest: dict[tuple[Any, ...], tuple[str, AnyRow]] = {}
    try:
        for (*method, stamp), row in _read(path, kind):
            latest[*method, row.source, row.run] = stamp, row
    except OSError as error:
        raise InputFileError(path, error.strerror or str(error)) from None
    except (lzma.LZMAError, EOFError) as error:
        raise InputFileError(path, f"not a whole xz file: {error}") from None
    return list(latest.values())


def _whole_lines(path: Path) -> bool:
    """Cuts off what stands behind the last end of a line; whether any line is left."""
    with path.open("rb+") as file:
        end = file.read().rfind(b"\n") + 1
        file.truncate(end)
    return end > 0


def _line(values: list[Any]) -> str:
    return json.dumps(values) + "\n"


def _columns(kind: type[Row]) -> list[str]:
    return ["stamp", *(field.name for field in fields(kind))]


def _read(path: Path, kind: type[AnyRow]) -> Iterator[tuple[Key, AnyRow]]:
    columns = _columns(kind)
    with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as file:
        lines = enumerate(file, 1)
        if _json(path, *next(lines, (1, "null"))) != columns:
            raise InputFileError(path, f"not a file of rows: expected the columns {', '.join(columns)}", 1)
        for number, line in lines:
            values = _json(path, number, line)
            if not isinstance(values, list) or len(values) != len(columns):
                raise InputFileError(path, f"expected a row of {len(columns)} values", number)
            row = kind(**dict(zip(columns[1:], values[1:], strict=True)))
            yield (row.method, row.setting, row.seed, values[0]), row


def _json(path: Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise InputFileError(path, f"not JSON: {error}", number) from None


def by(rows: Iterable[AnyRow], *names: str) -> dict[tuple[Any, ...], list[AnyRow]]:
    """The rows grouped by the values of these fields, groups in the order in which they first come up."""
    groups: dict[tuple[Any, ...], list[AnyRow]] = {}
    for row in rows:
        groups.setdefault(tuple(getattr(row, name) for name in names), []).append(row)
    return groups
