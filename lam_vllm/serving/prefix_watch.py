"""Watches the contract from outside: what was emitted for a prefix must not change while the prefix is the same."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lam_vllm.messages import chain_digests, quick_digests
from lam_vllm.types import Message

Cause = Literal["defect", "failed_open", "config_changed", "client_changed"]


@dataclass(slots=True)
class _Known:
    """What the newest request that held this prefix was given for it."""

    emitted: str
    config: str
    failed: bool
    continued: bool


class PrefixWatch:
    """Digests of what was emitted for recent prefixes: least recently used first out, apart from any memo."""

    def __init__(self, max_messages: int = 65_536) -> None:
        self.max_messages = max_messages
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._known)

    def note(
        self, salt: str, given: Sequence[Message], emitted: Sequence[Message], config: str, *, failed: bool = False
    ) -> Cause | None:
        """Why this request breaks a prefix that vLLM has cached, or None; remembers the request either way.

        `config` names what decided the bytes, `failed` says that the originals went through after a failure.
        """
        raw = chain_digests(given, salt)
        out = quick_digests(emitted, salt)
        with self._lock:
            cause = self._cause(raw, out, config, failed)
            self._remember(raw, out, config, failed)
        return cause

    def _cause(self, raw: list[str], out: list[str], config: str, failed: bool) -> Cause | None:
        # Digests are rolling: when the longest known prefix agrees, every shorter one does.
        shared = next((i for i in range(len(raw) - 1, -1, -1) if raw[i] in self._known), -1)
        if shared < 0:
            return None
        known = self._known[raw[shared]]
        if known.emitted != out[shared]:
            if known.failed or failed:
                return "failed_open"
            return "defect" if known.config == config else "config_changed"
        diverges = shared + 1 < len(raw) and known.continued
        return "client_changed" if diverges and shared >= 1 else None

    def _remember(self, raw: list[str], out: list[str], config: str, failed: bool) -> None:
        last = len(raw) - 1
        for place, (key, emitted) in enumerate(zip(raw, out, strict=True)):
            before = self._known.pop(key, None)
            continued = place < last or (before is not None and before.continued)
            self._known[key] = _Known(emitted, config, failed, continued)
        while len(self._known) > self.max_messages:
            self._known.popitem(last=False)


def is_sampled(prefix_digest: str, rate: float) -> bool:
    """Whether the prefix with this hex digest is in the share `rate`; "" is that of no messages.

    The digest decides, so every replica takes the same ones.
    """
    return prefix_digest != "" and int(prefix_digest[:8], 16) < rate * 2**32
