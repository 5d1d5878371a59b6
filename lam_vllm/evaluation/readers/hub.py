"""Rows of a Hugging Face data set, by its name on the hub or from a folder, streamed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lam_vllm.errors import InputFileError, MissingExtraError

_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_FILES = (".json", ".jsonl", ".traj", ".xz")


def files_of(name: str | Path) -> list[str | Path]:
    """The recorded files that this folder itself holds, sorted; else the name alone."""
    if not Path(name).is_dir():
        return [name]
    return sorted(path for path in Path(name).glob("*") if path.suffix in _FILES and path.is_file()) or [name]


def is_dataset(name: str | Path) -> bool:
    """Whether this names a data set and no file: `OWNER/NAME`, or a folder; both with or without `:SPLIT`.

    A folder is none where `files_of` finds files and no split is named; `OWNER/NAME` is none where OWNER is a folder
    here, so that a mistyped path is not looked for elsewhere.
    """
    if Path(name).exists():
        return files_of(name) == [name] and Path(name).is_dir()
    path, _ = _path_and_split(str(name))
    if Path(path).is_dir():
        return True
    return _NAME.fullmatch(path) is not None and not path.endswith(_FILES) and not Path(path).parent.is_dir()


def read_dataset(name: str | Path) -> Iterator[tuple[int, Any]]:
    """The rows of a data set, each with its number (counted from 1), fetched as they are asked for.

    Where it has several splits one is named with it: `SWE-bench/SWE-smith-trajectories:tool`.

    Raises:
        MissingExtraError: the library `datasets` is not installed.
        InputFileError: the hub cannot be reached or has no such data set, or the split is none of its splits.
    """
    if find_spec("datasets") is None:
        raise MissingExtraError(f"reading the data set {name}", "eval")
    path, split = _path_and_split(str(name))
    try:
        yield from enumerate(_rows(path, split), 1)
    except InputFileError:
        raise
    except Exception as error:  # noqa: BLE001 - the hub, the network and every file format have errors of their own
        reason = f"cannot be read as a data set, here or from the hub ({type(error).__name__}: {error})"
        raise InputFileError(name, reason) from None


def _rows(path: str, split: str | None) -> Iterable[Any]:
    from datasets import load_dataset

    splits: Mapping[str, Iterable[Any]] = load_dataset(path, streaming=True)
    if split is None and len(splits) == 1:
        split = next(iter(splits))
    if split is None or split not in splits:
        wanted = "several splits" if split is None else f"no split {split!r}"
        raise InputFileError(path, f"the data set has {wanted}; name one as {path}:SPLIT, of {', '.join(splits)}")
    return splits[split]


def _path_and_split(name: str) -> tuple[str, str | None]:
    path, _, split = name.partition(":")
    return (name, None) if Path(name).exists() or not split else (path, split)
