"""Removed text by id, in this process, bounded by bytes."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict

_ENTRY_BYTES = 200
"""Charged per record besides its text: key, list node and string header of CPython."""


class RecordStore:
    """Removed text by id, least recently used first out. Safe to use from several threads.

    An id is a keyed hash of the tenant's salt and the text: without `key` nobody can tell from an id whether a guessed
    text was ever removed, and an id works only together with the salt it was made under.
    """

    def __init__(self, max_bytes: int, key: bytes) -> None:
        self.max_bytes = max_bytes
        self.bytes_used = 0
        self._key = key
        self._texts: OrderedDict[bytes, str] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, salt: str, text: str) -> str:
        """Hex id of `text` under `salt`; the same for equal arguments. Text over `max_bytes` is not kept."""
        identity = self._keyed("id", salt, text)
        place = self._place(salt, identity)
        with self._lock:
            if place in self._texts:
                self._texts.move_to_end(place)
            else:
                self._texts[place] = text
                self.bytes_used += _cost(text)
            while self.bytes_used > self.max_bytes:
                _, dropped = self._texts.popitem(last=False)
                self.bytes_used -= _cost(dropped)
        return identity

    def get(self, salt: str, identity: str) -> str | None:
        """The text with this id, or None: unknown, dropped and foreign ids are one case and one code path."""
        place = self._place(salt, identity)
        with self._lock:
            text = self._texts.get(place)
            if text is not None:
                self._texts.move_to_end(place)
        return text

    def check_integrity(self) -> None:
        """Assert the conservation law: bytes charged are the sum of what is held, and within the bound."""
        with self._lock:
            held = sum(_cost(text) for text in self._texts.values())
            if held != self.bytes_used or held > self.max_bytes:
                raise AssertionError(f"{held} bytes held, {self.bytes_used} charged, {self.max_bytes} allowed")

    def _place(self, salt: str, identity: str) -> bytes:
        return bytes.fromhex(self._keyed("place", salt, identity))

    def _keyed(self, *parts: str) -> str:
        keyed = hashlib.blake2b(key=self._key, digest_size=16)
        for part in parts:
            data = part.encode("utf-8", "surrogatepass")
            keyed.update(len(data).to_bytes(8, "little"))
            keyed.update(data)
        return keyed.hexdigest()


def _cost(text: str) -> int:
    return _ENTRY_BYTES + len(text.encode("utf-8", "surrogatepass"))
