"""L0 alone (the paper, section 1): lines that an earlier line of the run repeats to the byte go without a trace."""

from __future__ import annotations

from typing import Any

from lam_vllm.evaluation.baselines.texts import observations_of, with_observations
from lam_vllm.evaluation.corpus import Run
from lam_vllm.stubs import parse_stub


class RepeatedLines:
    """A `Method`: the first of equal lines stays, the others are dropped silently.

    An observation with text never becomes empty: where nothing of it would be left, its first line with text stays.
    Stub lines, where another layer has come before, are no lines of the tool: they stay and repeat nothing.
    """

    name = "l0"
    setting = ""
    seed = 0
    verbatim = True

    def shorten(self, run: Run) -> list[Any]:
        """The run's messages without repeated lines."""
        observations = observations_of(run)
        seen: set[str] = set()
        return with_observations(run, observations, [_without_repeats(each.text, seen) for each in observations])


def _without_repeats(text: str, seen: set[str]) -> str:
    """The lines of `text` that are not in `seen`, where they are put."""
    if not text.strip():
        return text
    lines = text.split("\n")
    stays = []
    for line in lines:
        stays.append(line not in seen)
        if parse_stub(line) is None:
            seen.add(line)
    if not any(stay and line.strip() for line, stay in zip(lines, stays, strict=True)):
        stays[next(place for place, line in enumerate(lines) if line.strip())] = True
    return "\n".join(line for line, stay in zip(lines, stays, strict=True) if stay)
