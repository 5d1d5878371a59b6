"""What a store under a cap must still have: the texts that were put into it last."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock

from tests.server.soaking import Removed

ROW_BYTES = 200
"""What a store charges for a row besides its text, generously."""
SURE = 0.5
"""Of the cap. Texts of requests under way come in between, and rows cost what the store says."""


@dataclass(slots=True)
class Shelf:
    """Texts in the order in which they were kept, as far back as they fit the cap for sure. Safe between threads."""

    cap_bytes: int
    draw: random.Random
    _recent: deque[Removed] = field(default_factory=deque)
    _gone: deque[Removed] = field(default_factory=lambda: deque(maxlen=10_000))
    _bytes: int = 0
    _lock: Lock = field(default_factory=Lock)

    def put(self, removed: Sequence[Removed]) -> None:
        """These were kept just now."""
        with self._lock:
            for each in removed:
                self._recent.append(each)
                self._bytes += _cost(each)
            while self._bytes > SURE * self.cap_bytes:
                oldest = self._recent.popleft()
                self._bytes -= _cost(oldest)
                self._gone.append(oldest)

    def some(self, many: int) -> tuple[list[Removed], list[Removed]]:
        """Some that must be there, and one that may have had to go."""
        with self._lock:
            recent = self.draw.sample(self._recent, min(many, len(self._recent)))
            older = [self.draw.choice(self._gone)] if self._gone else []
        return recent, older


def _cost(removed: Removed) -> int:
    return ROW_BYTES + len(removed.text.encode("utf-8", "surrogatepass"))
