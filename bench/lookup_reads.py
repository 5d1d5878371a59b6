"""How often a look-up reads the store."""

from __future__ import annotations

from collections.abc import Sequence

from lam_vllm.records import ID_LENGTH, RecordStore
from lam_vllm.stores import StoreSettings, open_rows

SALTS = {"found": "mine", "expired": "mine, deleted", "foreign": "theirs"}
"""The tenant under whose salt an id was made, by the kind of the id."""
_KEPT_SECONDS = 604_800.0


def asking_salt(kind: str) -> str:
    """The salt of who asks for an id of this kind."""
    return SALTS["expired" if kind == "expired" else "found"]


class CountedRows:
    """Rows that count how often they are read."""

    def __init__(self, url: str | None) -> None:
        self.reads = 0
        self._rows = open_rows(
            StoreSettings(url, 64_000_000, _KEPT_SECONDS), "records", bytes(32), lambda _errors: None
        )
        self.nbytes = self._rows.nbytes
        self.put_many, self.delete_group, self.close = self._rows.put_many, self._rows.delete_group, self._rows.close
        self.delete_many = self._rows.delete_many
        self.refresh, self.check_integrity = self._rows.refresh, self._rows.check_integrity

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Count the question, and hand it on."""
        self.reads += 1
        return self._rows.get_many(keys)


def reads_by_kind(url: str | None) -> dict[str, int]:
    """Reads of the store for one look-up of each kind of id."""
    rows = CountedRows(url)
    records = RecordStore(rows, bytes(32))
    ids = {kind: records.put(salt, "a text that was removed") for kind, salt in SALTS.items()}
    ids |= {"unknown": "5" * ID_LENGTH, "control": "6" * ID_LENGTH, "malformed": "no id"}
    records.forget(SALTS["expired"])
    reads = {}
    for kind, identity in ids.items():
        before = rows.reads
        records.look_up(asking_salt(kind), identity)
        reads[kind] = rows.reads - before
    rows.close()
    return reads
