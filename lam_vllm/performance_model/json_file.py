"""JSON files that users hand in: whatever is in them, they are read or refused with one error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lam_vllm.errors import InputFileError

MOST_BYTES = 2**20
"""Hundreds of times what describes a device or a model."""


def read_object(path: Path, expected: str) -> dict[str, Any]:
    """The object in this file; `expected` says what it should be.

    Raises:
        InputFileError: the file cannot be read, is larger than `MOST_BYTES`, is not JSON, or holds no object.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputFileError(path, f"cannot be read: {error.strerror or error}") from None
    if len(data) > MOST_BYTES:
        raise InputFileError(path, f"larger than {MOST_BYTES:,} bytes: expected {expected}")
    try:
        value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputFileError(path, f"not a JSON file: {error}") from None
    if not isinstance(value, dict):
        raise InputFileError(path, f"expected {expected}")
    return value


def is_file(name: str) -> bool:
    """Whether there is such a file; a name that no file can have is none."""
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False
