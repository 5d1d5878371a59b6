"""Stores of every kind behind one fixture, and a real Redis."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from lam_vllm.stores import Kind, Row, Rows, StoreError
from lam_vllm.stores.memory import MemoryRows
from lam_vllm.stores.redis import RedisRows
from lam_vllm.stores.sqlite import SqliteRows
from tests.redis_server import RedisServer

RETENTION = 1_000.0
GROUPS = (b"g" * 16, b"h" * 16, b"i" * 16)


def row(name: str, value: bytes | None = None, group: bytes = GROUPS[0]) -> Row:
    """A row whose key is a name in 16 bytes."""
    return Row(name.encode().ljust(16, b"."), group, name.encode() if value is None else value)


def get(rows: Rows, *names: str) -> list[bytes | None]:
    return rows.get_many([row(name).key for name in names])


def get_or_error(rows: Rows, *names: str) -> list[bytes | None] | str:
    """What a caller gets, which may be that the store cannot say."""
    try:
        return get(rows, *names)
    except StoreError:
        return "an error"


def tries() -> Iterator[None]:
    """Again and again for half a minute, which is more than anything here takes; then the test fails."""
    for _ in range(600):
        yield
        time.sleep(0.05)
    pytest.fail("it did not come about")


class Errors:
    """Counts what a store loses."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def __call__(self, errors: int) -> None:
        self.told.append(errors)

    @property
    def total(self) -> int:
        return sum(self.told)


class Backend(Protocol):
    """Opens empty stores of a kind, and the same one again."""

    reads_renew: bool

    def new(self, max_bytes: int = 1_000_000, kind: Kind = "records") -> Rows:
        """Rows of an empty store."""

    def again(self, max_bytes: int = 1_000_000, kind: Kind = "records") -> Rows:
        """Rows of the store that `new` made last."""

    def grow_old(self) -> None:
        """Let everything in the store be older than the retention."""


class Clock:
    """A clock that goes on with each look at it."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        self.now += 0.01
        return self.now


class MemoryBackend:
    reads_renew = True

    def __init__(self) -> None:
        self.clock = Clock()
        self._last: MemoryRows

    def new(self, max_bytes: int = 1_000_000, kind: Kind = "records") -> Rows:
        self._last = MemoryRows(max_bytes, RETENTION, self.clock)
        return self._last

    def again(self, max_bytes: int = 1_000_000, kind: Kind = "records") -> Rows:
        return self._last

    def grow_old(self) -> None:
        self.clock.now += RETENTION + 1


class SqliteBackend:
    reads_renew = False

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self._paths = (folder / f"{number}" / "store.sqlite" for number in itertools.count())
        self.path = folder
        self.opened: list[SqliteRows] = []

    def new(self, max_bytes: int = 1_000_000, kind: Kind = "records") -> Rows:
        self.path = next(self._paths)
        return self.again(max_bytes, kind)

    def again(self, max_bytes: int = 1_000_000, kind: Kind = "records") -> Rows:
        self.opened.append(SqliteRows(self.path, kind, max_bytes, RETENTION, self.clock))
        return self.opened[-1]

    def grow_old(self) -> None:
        self.clock.now += RETENTION + 1

    def close(self) -> None:
        for rows in self.opened:
            rows.close()


class RedisBackend:
    reads_renew = False

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.client = server.client()
        self.opened: list[RedisRows] = []

    def new(self, max_bytes: int = 1_000_000, kind: Kind = "records") -> Rows:
        self.client.flushall()
        return self.again(max_bytes, kind)

    def again(self, max_bytes: int = 1_000_000, kind: Kind = "records") -> Rows:
        self.opened.append(RedisRows(self.server.url, kind, max_bytes, RETENTION))
        return self.opened[-1]

    def grow_old(self) -> None:
        """Rows expire, and the index says that it was long ago: the server's clock cannot be moved."""
        client: Any = self.client  # its types allow for one that is awaited
        for key in client.keys("*row:*"):
            assert 0 < client.pttl(key) <= 1_000 * RETENTION
            client.delete(key)
        for index in client.keys("*age"):
            for key in client.zrange(index, 0, -1):
                client.zadd(index, {key: 1})

    def close(self) -> None:
        for rows in self.opened:
            rows.close()
        self.client.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a store in a folder that is not there yet."""
    return tmp_path / "made" / "store.sqlite"


@pytest.fixture
def filled(path: Path) -> Iterator[SqliteRows]:
    """Rows of many pages, in the file itself: nothing is in its log."""
    rows = SqliteRows(path, "records", 50_000_000, RETENTION)
    rows.put_many([row(f"row {number}", bytes([number]) * 5_000) for number in range(100)])
    rows.close()
    yield rows
    rows.close()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session", params=["memory", "sqlite", "redis"])
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    if request.param == "memory":
        yield MemoryBackend()
        return
    if request.param == "sqlite":
        made: SqliteBackend | RedisBackend = SqliteBackend(tmp_path_factory.mktemp("sqlite"))
    else:
        made = RedisBackend(request.getfixturevalue("redis_server"))
    yield made
    made.close()
