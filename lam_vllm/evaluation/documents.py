"""JSON out of files: one document, or one a line, plain or xz, told apart by content."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Any

from lam_vllm.errors import InputFileError

XZ_MAGIC = b"\xfd7zXZ\x00"
_UNREADABLE = (ValueError, RecursionError)  # beside text that is not JSON, numbers too long and nesting too deep


def read_documents(path: str | Path) -> Iterator[tuple[int, Any]]:
    """The file's JSON values, each with the line it begins in (counted from 1); read as they are asked for.

    A first line that is JSON by itself makes the file one of JSON lines; otherwise the whole file is one value.

    Raises:
        InputFileError: the file cannot be opened, is empty, or is not UTF-8, xz or JSON; names the line.
    """
    with _opened(path) as file:
        lines = ((number, line) for number, line in enumerate(file, 1) if line.strip())
        first = next(lines, None)
        if first is None:
            raise InputFileError(path, "the file is empty")
        try:
            value = json.loads(first[1])
        except _UNREADABLE as error:
            yield first[0], _whole(path, first, list(lines), error)
            return
        yield first[0], value
        for number, line in lines:
            yield number, _parsed(path, number, line)


def line_count(path: str | Path) -> int:
    """How many lines that are not blank the file has: at least as many as it holds documents.

    Raises:
        InputFileError: as `read_documents`, JSON aside.
    """
    with _opened(path) as file:
        return sum(bool(line.strip()) for line in file)


@contextmanager
def _opened(path: str | Path) -> Iterator[IO[str]]:
    try:
        with Path(path).open("rb") as raw:
            packed = raw.read(len(XZ_MAGIC)) == XZ_MAGIC
        with lzma.open(path, "rt", encoding="utf-8") if packed else Path(path).open(encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise InputFileError(path, error.strerror or str(error)) from None
    except (lzma.LZMAError, EOFError) as error:
        raise InputFileError(path, f"not a whole xz file: {error}") from None
    except UnicodeDecodeError as error:
        raise InputFileError(path, f"not UTF-8: {error.reason} at byte {error.start}") from None


def _parsed(path: str | Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except _UNREADABLE as error:
        raise InputFileError(path, _why(error), number) from None


def _whole(path: str | Path, first: tuple[int, str], rest: list[tuple[int, str]], line_error: Exception) -> Any:
    try:
        return json.loads("".join(line for _, line in chain([first], rest)))
    except _UNREADABLE as error:
        if rest and _is_object(rest[0][1]):  # JSON lines whose first is broken
            raise InputFileError(path, _why(line_error), first[0]) from None
        numbers = [number for number, _ in chain([first], rest)]
        place = numbers[min(error.lineno, len(numbers)) - 1] if isinstance(error, json.JSONDecodeError) else first[0]
        raise InputFileError(path, _why(error), place) from None


def _why(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg} at column {error.colno}"
    return "JSON nested too deeply" if isinstance(error, RecursionError) else "JSON with a number of too many digits"


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except _UNREADABLE:
        return False
