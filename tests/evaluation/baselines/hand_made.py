"""Runs and vectors that are small enough to check by eye."""

from __future__ import annotations

import math
import re

import numpy as np

from lam_vllm.evaluation.corpus import Run
from lam_vllm.types import Embedding


def run_of(*results: str, run_id: str = "hand-made", gold_patch: str | None = None) -> Run:
    """A conversation in which every tool result follows a call."""
    messages: list[dict[str, str]] = [{"role": "user", "content": "go"}]
    for result in results:
        messages += [{"role": "assistant", "content": "call"}, {"role": "tool", "content": result}]
    return Run(run_id, "hand", tuple(messages), gold_patch)


def results_of(messages: list[dict[str, str]]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "tool"]


def count_words(text: str) -> int:
    """Words, signs and line ends: a price that adds up over lines."""
    return len(re.findall(r"\w+|[^\w\s]|\n", text))


def at_angles(*degrees: float) -> Embedding:
    """Unit vectors in a plane."""
    radians = [math.radians(angle) for angle in degrees]
    return np.array([[math.cos(angle), math.sin(angle)] for angle in radians], dtype=np.float32)


def cos_of(degrees: float) -> float:
    return math.cos(math.radians(degrees))
