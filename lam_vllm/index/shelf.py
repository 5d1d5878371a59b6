"""Indexes in a store: one row for the table of each prefix, and one for each full segment, by what is in it."""

from __future__ import annotations

import struct
from collections.abc import Collection

from lam_vllm.codec import CodecError
from lam_vllm.index.nouns import PrefixWindows
from lam_vllm.index.prefix_index import MOST_INDEX_BYTES, EncodedAs, PrefixIndex
from lam_vllm.index.segments import SEGMENT_ROWS, Segment, blocks, read_segment
from lam_vllm.index.table import EVICTED, Table, read_table, table_bytes
from lam_vllm.stores import OnError, Row, Rows
from lam_vllm.stores.hashes import group_of, keyed_hash
from lam_vllm.types import Embedding


class IndexShelf:
    """The indexes that some rows hold, whose keys are hashes under `key`. Safe to use from several threads.

    `on_error` is told of what is kept and is no index; the rows count their failures themselves.
    """

    def __init__(
        self,
        rows: Rows,
        key: bytes,
        encoded: EncodedAs,
        on_error: OnError,
        *,
        max_index_bytes: int = MOST_INDEX_BYTES,
    ) -> None:
        self._rows = rows
        self._key = key
        self._encoded = encoded
        self._on_error = on_error
        self._max_bytes = max_index_bytes

    @property
    def nbytes(self) -> int:
        """Bytes charged for what is kept, as far as they are known."""
        return self._rows.nbytes

    def put(self, salt: str, prefix: PrefixWindows, superseded: Collection[str] = ()) -> None:
        """Keep the index of this prefix, and those of the `superseded` prefixes, which it extends, no longer.

        All of it is written, whatever is there: so no part of it is ever older than its table.

        Raises:
            StoreError: the store cannot be written now.
        """
        index = self.build(prefix)
        group, full = group_of(self._key, salt), len(prefix.rows) // SEGMENT_ROWS
        rows = [
            Row(self._name(salt, block), group, segment.data)
            for block, segment in zip(blocks(prefix.rows), index.segments[:full], strict=False)
            if segment is not None
        ]
        names = [EVICTED] * (full - len(rows)) + [row.key for row in rows]
        tail = index.segments[full] if len(index.segments) > full else None
        table = Table(
            self._encoded.dimension,
            len(prefix.rows),
            index.eps,
            index.embedding_error,
            index.uncovered,
            index.windows,
            tuple(names),
            b"" if tail is None else tail.data,
        )
        self._rows.put_many([*rows, Row(self._place(salt, prefix.digest), group, table_bytes(table))])
        self._rows.delete_many([self._place(salt, digest) for digest in superseded if digest != prefix.digest])

    def build(self, prefix: PrefixWindows) -> PrefixIndex:
        """The index as it would be kept."""
        return self._encoded.build(prefix, self._max_bytes)

    def get(self, salt: str, digest: str) -> PrefixIndex | None:
        """The index of the prefix, None where none is kept. What was damaged is not there, and is counted.

        Raises:
            StoreError: the store cannot be read now.
        """
        (data,) = self._rows.get_many([self._place(salt, digest)])
        table = None if data is None else self._table(data)
        if table is None:
            return None
        names = [name for name in table.segments if name != EVICTED]
        found = dict(zip(names, self._rows.get_many(names), strict=True)) if names else {}
        segments = [self._segment(found.get(name), SEGMENT_ROWS, table) for name in table.segments]
        if table.rows % SEGMENT_ROWS:
            segments.append(self._segment(table.tail or None, table.rows % SEGMENT_ROWS, table))
        return PrefixIndex(digest, table.eps, table.embedding_error, table.uncovered, table.windows, tuple(segments))

    def forget(self, salt: str) -> None:
        """Delete whatever the store keeps under this salt.

        Raises:
            StoreError: the store cannot be written now, or cannot say yet that what was deleted is gone.
        """
        self._rows.delete_group(group_of(self._key, salt))

    def close(self) -> None:
        """Write what can be written soon, and let go of the store."""
        self._rows.close()

    def _table(self, data: bytes) -> Table | None:
        try:
            table = read_table(data)
            if table.dimension != self._encoded.dimension:
                raise CodecError("dimension", table.dimension, str(self._encoded.dimension))
        except CodecError:
            self._on_error(1)
            return None
        return table

    def _segment(self, data: bytes | None, rows: int, table: Table) -> Segment | None:
        try:
            return None if data is None else read_segment(data, rows, table.dimension)
        except CodecError:
            self._on_error(1)
            return None

    def _name(self, salt: str, block: Embedding) -> bytes:
        shape = struct.pack("<Id", len(block), self._encoded.eps)
        return keyed_hash(self._key, "segment", salt, shape, block.astype("<f4").tobytes())

    def _place(self, salt: str, digest: str) -> bytes:
        return keyed_hash(self._key, "index", self._encoded.fingerprint, salt, digest)
