"""Rows that prove where they come from: one that was damaged, moved or made by somebody else is not there."""

from __future__ import annotations

from collections.abc import Sequence

from lam_vllm.stores.base import OnError, Row, Rows
from lam_vllm.stores.hashes import DIGEST_BYTES, equal, keyed_hash

_HEAD = 2 * DIGEST_BYTES


class SealedRows:
    """Rows of another store, each value behind a hash under `key` over its key, its group and itself.

    `on_error` is told of every row whose hash is another; it is answered as one that is not there.
    """

    def __init__(self, rows: Rows, key: bytes, on_error: OnError) -> None:
        self._rows = rows
        self._key = key
        self._on_error = on_error

    @property
    def nbytes(self) -> int:
        """See `Rows`."""
        return self._rows.nbytes

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """See `Rows`. Raises as `Rows.get_many`."""
        return [self._opened(key, value) for key, value in zip(keys, self._rows.get_many(keys), strict=True)]

    def put_many(self, rows: Sequence[Row]) -> None:
        """See `Rows`. Raises as `Rows.put_many`."""
        self._rows.put_many([Row(row.key, row.group, self._sealed(row)) for row in rows])

    def delete_many(self, keys: Sequence[bytes]) -> None:
        """See `Rows`. Raises as `Rows.delete_many`."""
        self._rows.delete_many(keys)

    def delete_group(self, group: bytes) -> int:
        """See `Rows`. Raises as `Rows.delete_group`."""
        return self._rows.delete_group(group)

    def refresh(self) -> None:
        """See `Rows`. Raises as `Rows.refresh`."""
        self._rows.refresh()

    def check_integrity(self) -> None:
        """See `Rows`."""
        self._rows.check_integrity()

    def close(self) -> None:
        """See `Rows`."""
        self._rows.close()

    def _sealed(self, row: Row) -> bytes:
        return self._hash(row.key, row.group, row.value) + row.group + row.value

    def _opened(self, key: bytes, sealed: bytes | None) -> bytes | None:
        if sealed is None:
            return None
        seal, group, value = sealed[:DIGEST_BYTES], sealed[DIGEST_BYTES:_HEAD], sealed[_HEAD:]
        if equal(seal, self._hash(key, group, value)):
            return value
        self._on_error(1)
        return None

    def _hash(self, key: bytes, group: bytes, value: bytes) -> bytes:
        return keyed_hash(self._key, "row", key, group, value)
