"""Removed text by id: whoever has the id and the salt that it was made under may read it."""

from __future__ import annotations

from dataclasses import dataclass

from lam_vllm.stores import OnError, Row, Rows, StoreSettings, open_rows
from lam_vllm.stores.hashes import DIGEST_BYTES, equal, group_of, keyed_hash

ID_LENGTH = 4 * DIGEST_BYTES
"""Hexadecimal digits of an id: a hash of the text, and what proves that this key made it for this salt."""


@dataclass(frozen=True, slots=True)
class LookUp:
    """What is behind an id. Without a text, `known` says that there was one under this salt, and is no more."""

    text: str | None
    known: bool


class RecordStore:
    """Removed text in some rows. Safe to use from several threads.

    An id is a keyed hash of the tenant's salt and the text: without `key` nobody can tell from an id whether a guessed
    text was ever removed, and an id works only together with the salt it was made under. `on_error` is told of what is
    stored and is no text; the rows count their failures themselves.
    """

    def __init__(self, rows: Rows, key: bytes, on_error: OnError = lambda _errors: None) -> None:
        self._rows = rows
        self._key = key
        self._on_error = on_error

    @property
    def bytes_used(self) -> int:
        """Bytes charged for what is kept, as far as they are known."""
        return self._rows.nbytes

    def put(self, salt: str, text: str) -> str:
        """Hex id of `text` under `salt`; the same for equal arguments. Whether the text is kept, the store decides."""
        data = text.encode("utf-8", "surrogatepass")
        name = keyed_hash(self._key, "record", salt, data)
        self._rows.put_many([Row(self._place(salt, name), group_of(self._key, salt), data)])
        return (name + self._proof(salt, name)).hex()

    def look_up(self, salt: str, identity: str) -> LookUp:
        """What is behind this id. Whatever the id is, the store is asked once, and the same steps are taken.

        Waits for the store as long as its time limits allow; belongs into a thread where an event loop runs.

        Raises:
            StoreError: the store cannot be read now, whatever the id is.
        """
        name, proof = self._parts(identity)
        known = equal(proof, self._proof(salt, name))
        (value,) = self._rows.get_many([self._place(salt, name)])
        return LookUp(self._text(value) if known else None, known)

    def forget(self, salt: str) -> int:
        """Delete whatever is kept under this salt, embeddings too; how many records there were.

        Raises:
            StoreError: the store cannot be written now, or cannot say yet that the text is gone. What waited in this
                process to be written is deleted.
        """
        return self._rows.delete_group(group_of(self._key, salt))

    def check_integrity(self) -> None:
        """Raise AssertionError unless what is charged is what is kept, and within the cap."""
        self._rows.check_integrity()

    def close(self) -> None:
        """Write what can be written soon, and let go of the store."""
        self._rows.close()

    def _text(self, value: bytes | None) -> str | None:
        try:
            return None if value is None else value.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            self._on_error(1)
            return None

    def _parts(self, identity: str) -> tuple[bytes, bytes]:
        """The hash and the proof of an id. One that is malformed gets a hash of itself, which has another proof."""
        instead = keyed_hash(self._key, "malformed", identity[:ID_LENGTH])
        try:
            data = bytes.fromhex(identity) if len(identity) == ID_LENGTH else b""
        except ValueError:
            data = b""
        if 2 * len(data) != ID_LENGTH:
            data = instead + bytes(DIGEST_BYTES)
        return data[:DIGEST_BYTES], data[DIGEST_BYTES:]

    def _place(self, salt: str, name: bytes) -> bytes:
        return keyed_hash(self._key, "place", salt, name)

    def _proof(self, salt: str, name: bytes) -> bytes:
        return keyed_hash(self._key, "proof", salt, name)


def open_records(settings: StoreSettings, key: bytes, on_error: OnError = lambda _errors: None) -> RecordStore:
    """The records in the store that the settings name.

    Raises:
        as `open_rows`.
    """
    return RecordStore(open_rows(settings, "records", key, on_error), key, on_error)
