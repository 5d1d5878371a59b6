"""What every store is: rows of bytes by key, each of a group that can be deleted, bounded by bytes and by age."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias
from urllib.parse import urlsplit

from lam_vllm.errors import LamError

Kind = Literal["records", "embeddings", "index"]
KINDS: tuple[Kind, ...] = ("records", "embeddings", "index")

REDIS_SCHEMES = frozenset({"redis", "rediss", "unix", "valkey", "valkeys"})
SCHEMES = frozenset({"", "sqlite", *REDIS_SCHEMES})
"""Of the URLs that can be opened; a text without one is the path of a file."""

OnError: TypeAlias = Callable[[int], object]
"""Told how many rows or answers were lost, or tries failed, since it was last told."""

MEMORY_BYTES = 64_000_000
RETENTION_SECONDS = 604_800.0
ROW_BYTES = 200
"""Charged for a row besides its value: keys, times and the entries of every index."""


class StoreError(LamError, RuntimeError):
    """A store cannot be reached, read or written now. Whoever asks again later may find that it can."""


@dataclass(frozen=True, slots=True)
class Row:
    """A value under a key, which is a keyed hash of 16 bytes. `group` names the tenant, likewise by a hash."""

    key: bytes
    group: bytes
    value: bytes

    @property
    def cost(self) -> int:
        """Bytes that it is charged for."""
        return ROW_BYTES + len(self.value)


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where rows are kept: `url` None is the memory of the process. `max_bytes` is the cap of each kind of row."""

    url: str | None = None
    max_bytes: int = MEMORY_BYTES
    retention_seconds: float = RETENTION_SECONDS

    @property
    def kind(self) -> Literal["memory", "sqlite", "redis"]:
        """What the URL names, in a word."""
        if self.url is None:
            return "memory"
        return "redis" if urlsplit(self.url).scheme in REDIS_SCHEMES else "sqlite"

    @property
    def label(self) -> str:
        """The URL as it may be shown: without its password, which may also stand in its query."""
        if self.url is None:
            return "memory"
        place, mark, _ = self.url.partition("?")
        user, at, host = urlsplit(self.url).netloc.rpartition("@")
        name, colon, _ = user.partition(":")
        shown = place.replace(f"{user}{at}{host}", f"{name}:***@{host}", 1) if colon else place
        return f"{shown}?***" if mark else shown


class Rows(Protocol):
    """Rows of one kind. Safe to use from several threads.

    Over the cap what was written longest ago goes first; what is older than the retention is not there.
    """

    @property
    def nbytes(self) -> int:
        """Bytes charged for what is kept, last known; never waits."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of these keys, None for each that is not there.

        Raises:
            StoreError: the store cannot be read now.
        """

    def put_many(self, rows: Sequence[Row]) -> None:
        """Keep these rows, or renew them; one that is larger than the cap is not kept.

        Raises:
            StoreError: the store cannot be written now, and none of them is kept.
        """

    def delete_many(self, keys: Sequence[bytes]) -> None:
        """Delete the rows under these keys, if they are there.

        Raises:
            StoreError: the store cannot be written now; what was deleted is not known.
        """

    def delete_group(self, group: bytes) -> int:
        """Delete every row of the group, those of other kinds too; how many of this kind there were.

        Raises:
            StoreError: the store cannot be written now; what was deleted, or whether its text is gone, is not known.
        """

    def refresh(self) -> None:
        """Drop what is too old, and look up how much is kept.

        Raises:
            StoreError: the store cannot be written now.
        """

    def check_integrity(self) -> None:
        """Raise AssertionError unless what is charged is what is kept, and within the cap.

        Raises:
            StoreError: the store cannot be read now.
        """

    def close(self) -> None:
        """Let go of the store; what was put and can be written is written first."""
