"""JSON out of files: one document, or one a line, plain or xz, told apart by content."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Any

from lam_vllm.errors import InputFileError

XZ_MAGIC = b"\xfd7zXZ\x00"
_UNREADABLE = (ValueError, RecursionError)  # beside text that is not JSON, numbers too long and nesting too deep


def refuse(error: InputFileError) -> None:
    """Never returns: whoever reads strictly ends at the first document that cannot be read."""
    raise error


def read_documents(path: str | Path, on_bad: Callable[[InputFileError], None] = refuse) -> Iterator[tuple[int, Any]]:
    """The file's JSON values, each with the line it begins in (counted from 1); read as they are asked for.

    A first line that is JSON by itself makes the file one of JSON lines; otherwise the whole file is one value. Lines
    that are not JSON go to `on_bad`, which raises or passes over them.

    Raises:
        InputFileError: the file cannot be opened, is empty, or is not UTF-8, xz or JSON as a whole; names the line.
    """
    with _opened(path) as file:
        lines: Iterator[tuple[int, bytes]] = ((number, line) for number, line in enumerate(file, 1) if line.strip())
        first = next(lines, None)
        if first is None:
            raise InputFileError(path, "the file is empty")
        if not _is_json(first[1]):
            all_lines = [first, *lines]
            try:
                document = _whole(path, all_lines)
            except InputFileError:
                if not any(_is_object(line) for _, line in all_lines[1:]):
                    raise
                lines = iter(all_lines[1:])  # JSON lines whose first is broken
            else:
                yield first[0], document
                return
        yield from _each(path, chain([first], lines), on_bad)


def line_count(path: str | Path) -> int:
    """How many lines that are not blank the file has: at least as many as it holds documents.

    Raises:
        InputFileError: as `read_documents`, JSON aside.
    """
    with _opened(path) as file:
        return sum(bool(line.strip()) for line in file)


@contextmanager
def _opened(path: str | Path) -> Iterator[IO[bytes]]:
    try:
        with Path(path).open("rb") as raw:
            packed = raw.read(len(XZ_MAGIC)) == XZ_MAGIC
        with lzma.open(path) if packed else Path(path).open("rb") as file:
            yield file
    except OSError as error:
        raise InputFileError(path, error.strerror or str(error)) from None
    except (lzma.LZMAError, EOFError) as error:
        raise InputFileError(path, f"not a whole xz file: {error}") from None


def _each(
    path: str | Path, lines: Iterable[tuple[int, bytes]], on_bad: Callable[[InputFileError], None]
) -> Iterator[tuple[int, Any]]:
    for number, line in lines:
        try:
            value = json.loads(line.decode())
        except _UNREADABLE as error:
            on_bad(InputFileError(path, _why(error), number))
        else:
            yield number, value


def _whole(path: str | Path, lines: list[tuple[int, bytes]]) -> Any:
    texts = []
    for number, line in lines:
        try:
            texts.append(line.decode())
        except UnicodeDecodeError as error:
            raise InputFileError(path, _why(error), number) from None
    try:
        return json.loads("".join(texts))
    except _UNREADABLE as error:
        place = min(error.lineno, len(lines)) - 1 if isinstance(error, json.JSONDecodeError) else 0
        raise InputFileError(path, _why(error), lines[place][0]) from None


def _why(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg} at column {error.colno}"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8: {error.reason} at byte {error.start} of the line"
    return "JSON nested too deeply" if isinstance(error, RecursionError) else "JSON with a number of too many digits"


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line.decode())
    except _UNREADABLE:
        return False
    return True


def _is_object(line: bytes) -> bool:
    return line.lstrip().startswith(b"{") and _is_json(line)
