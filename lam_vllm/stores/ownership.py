"""Whose file a path names. Nothing is written into, renamed or closed to others that is not a store of this package."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

APPLICATION_ID = 0x6C616D31  # lam1
"""Says of a SQLite file that it is a store of this package; it lies in the header of the file."""
SUFFIXES = ("-wal", "-shm", "")
_ID_BYTES = APPLICATION_ID.to_bytes(4, "big")
_MAGIC = b"SQLite format 3\0"
_ID_AT, _HEADER = 68, 72
_LOG_MAGICS = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
_LOG_HEADER, _FRAME_HEADER = 32, 24
_MOST_FRAMES = 20_000

Identity = tuple[int, int]
_opened: set[Identity] = set()
"""Files that this process found to be its own. They are not looked into again: closing a file gives up every lock that
the process holds on it, those of SQLite too. And one whose header is damaged since is known by this."""


def identity_of(path: Path) -> Identity:
    """What tells a file from another one of the same name; (0, 0) where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_dev, found.st_ino


def remember(identity: Identity) -> None:
    """This process found the file to be its own."""
    _opened.add(identity)


def forget(identity: Identity) -> None:
    """The file is gone, and another one may be given its number."""
    _opened.discard(identity)


def why_foreign(path: Path) -> str | None:
    """Why the path is not to be touched; None where nothing is there, or an empty file, or a store of this package.

    One whose header is damaged is known by the log beside it, or by this process having used it before.

    Raises:
        OSError: it cannot be looked at.
    """
    if not path.exists():
        return None
    if not path.is_file():
        return "is no regular file"
    if identity_of(path) in _opened or _is_empty_or_ours(path) or _log_is_ours(path.with_name(path.name + "-wal")):
        return None
    return "is not a store of this package"


def make_private(path: Path) -> None:
    """Make the file where there is none, and let its owner alone read it and its companions.

    It is made under another name first: closing a file gives up every lock that the process holds on it, and another
    thread may have opened this one with SQLite by then.
    """
    if not path.exists():
        _make(path)
    for suffix in SUFFIXES:
        file = path.with_name(path.name + suffix)
        with suppress(FileNotFoundError):
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)


def _make(path: Path) -> None:
    handle, name = tempfile.mkstemp(prefix=path.name, dir=path.parent)
    os.close(handle)
    try:
        path.hardlink_to(name)
    except FileExistsError:
        pass  # another process was quicker
    finally:
        Path(name).unlink()


def _is_empty_or_ours(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(_HEADER)
    return not head or (head.startswith(_MAGIC) and head[_ID_AT:] == _ID_BYTES)


def _log_is_ours(path: Path) -> bool:
    """Whether the log holds the first page of a store of this package."""
    try:
        with path.open("rb") as log:
            header = log.read(_LOG_HEADER)
            if not header.startswith(_LOG_MAGICS):
                return False
            frame = _FRAME_HEADER + int.from_bytes(header[8:12], "big")
            for number in range(_MOST_FRAMES):
                log.seek(_LOG_HEADER + number * frame)
                head = log.read(_FRAME_HEADER + _HEADER)
                page, first = head[:4], head[_FRAME_HEADER:]
                if len(head) < _FRAME_HEADER + _HEADER:
                    return False
                if page == b"\0\0\0\1" and first.startswith(_MAGIC) and first[_ID_AT:] == _ID_BYTES:
                    return True
    except FileNotFoundError:
        pass
    return False
