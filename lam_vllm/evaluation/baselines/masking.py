"""Observation masking: the last k tool results stay whole, of each older one a single line is left."""

from __future__ import annotations

from typing import Any

from lam_vllm.errors import OptionError
from lam_vllm.evaluation.baselines.texts import observations_of, with_observations
from lam_vllm.evaluation.corpus import Run


class ObservationMasking:
    """A `Method`: what a run's prompt holds at its END, with all results masked but the last `keep`.

    That is the state the paper scores. It is not prefix-stable: each new result masks another one in the middle of
    the prompt, which voids the cached prefix from there on; that cost is in none of the figures here.

    Raises:
        OptionError: `keep` is negative.
    """

    name = "masking"
    seed = 0
    verbatim = True

    def __init__(self, keep: int) -> None:
        if keep < 0:
            raise OptionError("masking k", keep, "an integer of at least 0")
        self.setting = f"k={keep}"
        self._keep = keep

    def shorten(self, run: Run) -> list[Any]:
        """The run's messages with a placeholder in each text of all tool results but the last ones."""
        observations = observations_of(run)
        last = observations[-1].result if observations else 0
        masked = [
            _placeholder(each.text) if each.text and each.result <= last - self._keep else each.text
            for each in observations
        ]
        return with_observations(run, observations, masked)


def _placeholder(text: str) -> str:
    lines = text.count("\n") + 1
    return f"[old tool output: {lines} line{'s' if lines > 1 else ''} left out]"
