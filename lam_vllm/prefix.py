"""The public check of prefix stability: what was emitted once stays as it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lam_vllm.types import Compaction, Message


def prefix_breaks(compact: Callable[[Sequence[Message]], Compaction], messages: Sequence[Message]) -> list[int]:
    """Every length k at which `compact(messages[:k])` differs from the first k messages of `compact(messages)`.

    Empty for a rule that keeps the cached prefix.
    """
    whole = compact(messages).messages
    return [k for k in range(len(messages) + 1) if list(compact(messages[:k]).messages) != list(whole[:k])]
