"""What of the tool output no window covers: results too short to be looked at, cut-up windows, what is over a cap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lam_vllm.config import CompactorConfig
from lam_vllm.index.nouns import Gap, PrefixWindows
from lam_vllm.memory import Emitted, Mark
from lam_vllm.messages import observed_texts
from lam_vllm.types import Embedding, Message, Observation

LEAST_CHARACTERS = 16
"""A shorter gap, blanks at its ends not counted, says too little to be found."""


def prefix_windows(
    messages: Sequence[Message],
    marks: Sequence[Mark],
    rows: Embedding,
    config: CompactorConfig,
    embedding_error: float,
) -> PrefixWindows:
    """What there is to index of these messages, each with its mark; `rows` begins with those of their windows."""
    digests = tuple(mark.digest for mark in marks)
    return PrefixWindows(
        digests[-1] if digests else "",
        digests[:-1],
        tuple(window for mark in marks for window in mark.emitted.seen),
        rows[: marks[-1].size.windows if marks else 0],
        embedding_error,
        tuple(_gaps(messages, marks, config)),
        config.max_windows,
    )


def _gaps(messages: Sequence[Message], marks: Sequence[Mark], config: CompactorConfig) -> Iterator[Gap]:
    """Spans that are in no window and that no decision took out, in the order of the text."""
    result = 0
    for index, mark in enumerate(marks):
        if mark.emitted.observation:
            result += 1
            for observation in observed_texts(messages, index, result, config.exclude_tools)[0]:
                yield from _between(observation, mark.emitted)


def _between(observation: Observation, emitted: Emitted) -> Iterator[Gap]:
    text, part = observation.text, observation.part
    spans = [(each.start, each.end) for each in emitted.seen if each.part == part]
    spans += [(each.start, each.end) for each in emitted.decisions if each.part == part]
    at = 0
    for start, end in (*sorted(spans), (len(text), len(text))):
        inside = text[at:start]
        stripped = inside.strip()
        if len(stripped) >= LEAST_CHARACTERS:
            first = at + len(inside) - len(inside.lstrip())
            yield Gap(*observation[:3], first, first + len(stripped), text)
        at = max(at, end)
