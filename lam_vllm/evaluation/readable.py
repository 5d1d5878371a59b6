"""What observations show: the lines that a reader sees verbatim, apart from the stubs between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lam_vllm.messages import is_observation, observed_texts
from lam_vllm.stubs import holds_stub, parse_stub, unescape
from lam_vllm.types import Message


@dataclass(frozen=True, slots=True)
class Shown:
    """The lines that one observation shows verbatim, and the shifts of line numbers that its stubs print."""

    lines: tuple[str, ...]
    shifts: frozenset[int]


def shown_by(messages: Sequence[Message], observations: str, *, compacted: bool) -> dict[int, Shown]:
    """What every observation shows, by the index of its message. Without `compacted`, all lines are the tool's own."""
    shown = {}
    for index in range(len(messages)):
        if is_observation(messages, index, observations):
            texts, _ = observed_texts(messages, index, 0, ())
            lines, shifts = [], set()
            for text in texts:
                for line, shift in _read(text.text, compacted):
                    lines.extend([line] if line is not None else [])
                    shifts.add(shift)
            shown[index] = Shown(tuple(lines), frozenset(shifts - {0}))
    return shown


def _read(text: str, compacted: bool) -> Iterator[tuple[str | None, int]]:
    """Every kept line of a text (with 0), and for every stub None and the shift it prints."""
    if compacted and text.startswith("\\") and holds_stub(text):
        text, compacted = unescape(text), False  # it passed whole: what reads like a stub in it is the tool's own
    for line in text.split("\n"):
        stub = parse_stub(line) if compacted else None
        yield (line, 0) if stub is None else (None, stub.shift)
