"""A way of making tool output shorter, as the evaluation sees it: profiles and baselines alike."""

from __future__ import annotations

from typing import Any, Protocol

from lam_vllm.evaluation.corpus import Run


class Method(Protocol):
    """Shortens the tool output of one run at a time."""

    name: str
    """The family: `exact`, `masking`."""
    setting: str
    """What was chosen in it: `k=10`; empty where there is nothing to choose."""
    seed: int
    verbatim: bool
    """Whether all that it keeps is text as it was (and references), so that evidence can be judged by its lines."""

    def shorten(self, run: Run) -> list[Any]:
        """The run's messages with shorter tool output; as many, in the same order."""
        ...
