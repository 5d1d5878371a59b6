"""No compaction: what everything else is compared with."""

from __future__ import annotations

from typing import Any

from lam_vllm.evaluation.corpus import Run


class NoCompaction:
    """A `Method` that hands on every message as it is."""

    name = "none"
    setting = ""
    seed = 0
    verbatim = True

    def shorten(self, run: Run) -> list[Any]:
        """The run's own messages."""
        return list(run.messages)
