"""The memo of prefixes: conversations that were seen before are recognised and extended, not computed again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import NamedTuple

from lam_vllm.memory import ConversationMemory


class _Kept(NamedTuple):
    memory: ConversationMemory
    nbytes: int
    marks: int


class PrefixMemo:
    """The longest known prefix of a conversation, by its rolling digests. LRU by bytes: a loss costs time only.

    Digests begin with the config and the salt, so that one memo serves many configs. Safe to use from several threads.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.nbytes = 0
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._by_digest: dict[str, ConversationMemory] = {}
        self._lent: set[int] = set()
        self._lock = Lock()

    def take(self, digests: Sequence[str], *, copy: bool = False) -> tuple[ConversationMemory | None, int]:
        """A memory, and how many leading messages it knows; to be given back with `put`, or `drop` if that failed.

        None where no prefix is known.

        A memory that reaches beyond the known messages is forked if more are to come, and stays as it is; with `copy`
        every one is. One that is out is passed over, since its taker is changing it: a shorter prefix, or none, costs
        time only.
        """
        with self._lock:
            for known in range(len(digests), 0, -1):
                memory = self._by_digest.get(digests[known - 1])
                if memory is None or id(memory) in self._lent:
                    continue
                if copy or (known < len(digests) and len(memory.marks) > known):
                    memory = memory.fork(known)
                self._lent.add(id(memory))
                return memory, known
        return None, 0

    def put(self, memory: ConversationMemory) -> None:
        """Keep a memory, as the most recent one; the least recent go while the cap is passed.

        One that is larger than the cap is not kept, and drives nobody else's out.
        """
        with self._lock:
            self._lent.discard(id(memory))
            if memory.nbytes > self.max_bytes:
                self._forget(memory)
                return
            before = self._kept.pop(id(memory), _Kept(memory, 0, 0))
            self._kept[id(memory)] = _Kept(memory, memory.nbytes, len(memory.marks))
            self.nbytes += memory.nbytes - before.nbytes
            for mark in memory.marks[before.marks :]:
                self._by_digest[mark.digest] = memory
            while self.nbytes > self.max_bytes and self._kept:
                self._forget(next(iter(self._kept.values())).memory)

    def drop(self, memory: ConversationMemory) -> None:
        """Forget a memory that was taken."""
        with self._lock:
            self._lent.discard(id(memory))
            self._forget(memory)

    def _forget(self, memory: ConversationMemory) -> None:
        kept = self._kept.pop(id(memory), None)
        if kept is None:
            return
        self.nbytes -= kept.nbytes
        for mark in memory.marks:
            if self._by_digest.get(mark.digest) is memory:
                del self._by_digest[mark.digest]

    def check_integrity(self) -> None:
        """Raise AssertionError unless bytes and entries add up, while nobody uses it."""
        assert self.nbytes == sum(kept.nbytes for kept in self._kept.values()) <= self.max_bytes
        assert all(kept.marks == len(kept.memory.marks) for kept in self._kept.values())
        assert all(id(memory) in self._kept for memory in self._by_digest.values())
