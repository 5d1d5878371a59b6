"""The tool output of a run as a list of texts, and the run's messages with other texts in their place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from lam_vllm.evaluation.corpus import Run
from lam_vllm.messages import is_observation, observed_texts, with_texts
from lam_vllm.types import Observation


def observations_of(run: Run) -> list[Observation]:
    """Every text of every tool result, in order; results are counted from 1."""
    found: list[Observation] = []
    result = 0
    for index in range(len(run.messages)):
        if is_observation(run.messages, index, "tool"):
            result += 1
            found += observed_texts(run.messages, index, result, ())[0]
    return found


def with_observations(run: Run, observations: Sequence[Observation], texts: Sequence[str]) -> list[Any]:
    """The run's messages with one text of `texts` in place of each observation; the run itself stays as it is."""
    changed: defaultdict[int, dict[int | None, str]] = defaultdict(dict)
    for observation, text in zip(observations, texts, strict=True):
        if text != observation.text:
            changed[observation.message][observation.part] = text
    return [
        with_texts(message, changed[index]) if index in changed else message
        for index, message in enumerate(run.messages)
    ]
