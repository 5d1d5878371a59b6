"""The memo of embeddings: no text is encoded twice for one tenant while its embedding is kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import Literal

from lam_vllm.stores.hashes import group_of, keyed_hash
from lam_vllm.types import Embedding

Kind = Literal["fast", "canonical"]

ENTRY_BYTES = 400
"""Charged for an entry besides its embedding: key, future, array header and list node of CPython."""


class Answer(Future[Embedding]):
    """An embedding to come, and what it is called where other processes find it: nothing, if they shall not.

    `spared` says that it came from another process before work on it had begun in this one.
    """

    def __init__(self, key: bytes = b"", group: bytes = b"") -> None:
        super().__init__()
        self.key = key
        self.group = group
        self.spared = False


@dataclass(slots=True)
class MemoCounts:
    """Questions so far: answered from the memo, by work that somebody else had under way, or by new work."""

    hits: int = 0
    joined: int = 0
    misses: int = 0
    evicted: int = 0


class EmbeddingMemo:
    """Futures of embeddings by (fingerprint, salt, kind, text), least recently used first out, bounded by bytes.

    A future that is not done is work under way: whoever asks for the same text waits for it. Such entries are never
    dropped, and a text whose work failed is forgotten. Losing an entry costs time, never bytes of an answer.

    Keys are hashes under `key`, so that processes that share it may share embeddings; `way` names the fast pass, whose
    embeddings are of use only to those that embed in the same way.
    """

    def __init__(self, max_bytes: int, fingerprint: str, dimension: int, *, key: bytes = b"", way: str = "") -> None:
        self.max_bytes = max_bytes
        self.counts = MemoCounts()
        self._hash_key = key
        self._names: dict[Kind, tuple[str, str]] = {
            "fast": (fingerprint, f"fast {way}"),
            "canonical": (fingerprint, "canonical"),
        }
        self._entry_bytes = ENTRY_BYTES + 4 * dimension
        self._entries: OrderedDict[bytes, Answer] = OrderedDict()
        self._lock = Lock()

    @property
    def nbytes(self) -> int:
        """Bytes held, estimated."""
        return len(self._entries) * self._entry_bytes

    def claim(self, salt: str, kind: Kind, texts: Sequence[str]) -> tuple[list[Answer], list[int]]:
        """A future for every text, and the places of those that the caller now has to fill (or fail)."""
        futures, new = [], []
        keys, group = [self._key(salt, kind, text) for text in texts], group_of(self._hash_key, salt)
        with self._lock:
            for place, key in enumerate(keys):
                future = self._entries.get(key)
                if future is None or _failed(future):  # who waited for it may be back before it is forgotten
                    future = self._entries[key] = Answer(key, group)
                    new.append(place)
                    self.counts.misses += 1
                else:
                    self._entries.move_to_end(key)
                    self._count(future)
                futures.append(future)
            self._evict()
        for place in new:
            futures[place].add_done_callback(lambda done, key=keys[place]: self._done(key, done))  # type: ignore[misc]
        return futures, new

    def check_integrity(self) -> None:
        """Raise AssertionError unless what is done fits into the bound."""
        with self._lock:
            done = sum(future.done() for future in self._entries.values())
        assert done * self._entry_bytes <= self.max_bytes

    def _count(self, future: Future[Embedding]) -> None:
        if future.done():
            self.counts.hits += 1
        else:
            self.counts.joined += 1

    def _done(self, key: bytes, future: Future[Embedding]) -> None:
        with self._lock:
            if _failed(future) and self._entries.get(key) is future:
                del self._entries[key]
            self._evict()

    def _evict(self) -> None:
        """Drop what is done, the least recently used first, until the rest fits; called with the lock held."""
        excess = len(self._entries) - self.max_bytes // self._entry_bytes
        if excess <= 0:
            return
        done = (key for key, future in self._entries.items() if future.done())
        for key in list(islice(done, excess)):
            del self._entries[key]
            self.counts.evicted += 1

    def _key(self, salt: str, kind: Kind, text: str) -> bytes:
        fingerprint, name = self._names[kind]
        return keyed_hash(self._hash_key, "embedding", fingerprint, salt, name, text)


def _failed(future: Future[Embedding]) -> bool:
    return future.done() and (future.cancelled() or future.exception() is not None)
