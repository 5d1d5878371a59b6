"""Rows on a Redis or Valkey server, for every process of several hosts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lam_vllm.errors import MissingExtraError
from lam_vllm.stores.base import KINDS, Kind, Row, StoreError
from lam_vllm.stores.redis_scripts import CHECK, DELETE, DROP, PUT, STEP

TIMEOUT_SECONDS = 0.5
"""How long a connection, and an answer, is waited for."""
_ANEW = {"valkey": "redis", "valkeys": "rediss"}


class RedisRows:
    """See `Rows`. The age of a row is told by the server's clock.

    A row is a string that expires by itself. An index of ages and sizes, kept by scripts that run on the server, tells
    how much is kept and what was written longest ago. Its keys expire with the last row. The names of keys hold hashes
    alone, and share one hash tag over all kinds, so that a cluster has them on one node, which is the one to name. No
    script works through more than `STEP` rows besides those that it is given: the server does nothing else meanwhile.
    """

    def __init__(self, url: str, kind: Kind, max_bytes: int, retention_seconds: float) -> None:
        self.nbytes = 0
        self._prefixes = [_prefix(each) for each in KINDS]
        self._prefix = _prefix(kind)
        self._limits = max_bytes, max(1, round(1000 * retention_seconds))
        self._max_bytes = max_bytes
        self._client, self._error = _client(url)
        scripts = PUT, DROP, DELETE, CHECK
        self._put, self._drop, self._delete, self._check = map(self._client.register_script, scripts)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of these keys; see `Rows`."""
        if not keys:
            return []
        with self._asking():
            return list(self._client.mget([f"{self._prefix}row:{key.hex()}" for key in keys]))

    def put_many(self, rows: Sequence[Row]) -> None:
        """Keep these rows; see `Rows`."""
        kept = [row for row in rows if row.cost <= self._max_bytes]
        fields = [field for row in kept for field in (row.key.hex(), row.group.hex(), row.cost, row.value)]
        with self._asking():
            dropped = self._put_some(fields)
            while dropped == STEP:
                dropped = self._put_some([])

    def delete_many(self, keys: Sequence[bytes]) -> None:
        """Delete these rows; see `Rows`."""
        with self._asking():
            for start in range(0, len(keys), STEP):
                some = [key.hex() for key in keys[start : start + STEP]]
                self.nbytes = int(self._drop(keys=[self._prefix], args=some))

    def delete_group(self, group: bytes) -> int:
        """Delete the rows of the group; see `Rows`."""
        others = [prefix for prefix in self._prefixes if prefix != self._prefix]
        deleted, looked_at = 0, STEP
        with self._asking():
            while looked_at == STEP:
                more, looked_at = map(int, self._delete(keys=[self._prefix, *others], args=[group.hex()]))
                deleted += more
        return deleted

    def refresh(self) -> None:
        """Drop what is too old from the index; see `Rows`."""
        self.put_many([])

    def check_integrity(self) -> None:
        """See `Rows`."""
        with self._asking():
            held, total = map(int, self._check(keys=[self._prefix], args=[]))
        if held != total or total > self._max_bytes:
            raise AssertionError(f"{held} bytes held, {total} charged, {self._max_bytes} allowed")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _put_some(self, fields: Sequence[str | int | bytes]) -> int:
        """Put these and drop what is too old or too much; how many were dropped, `STEP` where there may be more."""
        self.nbytes, dropped = map(int, self._put(keys=[self._prefix], args=[*self._limits, *fields]))
        return dropped

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except (self._error, OSError) as error:
            raise StoreError(str(error)) from error


def _prefix(kind: Kind) -> str:
    return f"lam:1:{{lam}}:{kind}:"


def _client(url: str) -> tuple[Any, type[Exception]]:
    """A client that has not connected yet, and the error that it raises.

    Raises:
        MissingExtraError: the library is not installed.
        ValueError: the URL cannot be read.
    """
    try:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError:
        raise MissingExtraError("a store on Redis or Valkey", "redis", "a store in a file") from None
    scheme, separator, rest = url.partition("://")
    client = redis.Redis.from_url(
        f"{_ANEW.get(scheme, scheme)}{separator}{rest}",
        socket_timeout=TIMEOUT_SECONDS,
        socket_connect_timeout=TIMEOUT_SECONDS,
        retry=Retry(NoBackoff(), 0),  # whoever asks knows when to ask again
    )
    return client, redis.exceptions.RedisError
