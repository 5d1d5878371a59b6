"""What observations show: the lines that a reader sees verbatim, apart from the stubs between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lam_vllm.aliases import split_definitions, written_out
from lam_vllm.messages import is_observation, observed_texts
from lam_vllm.stubs import Stub, holds_stub, parse_stub, unescape
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
            lines: list[str] = []
            shifts: set[int] = set()
            for text in texts:
                for line in _read(text.text, compacted):
                    if isinstance(line, Stub):
                        shifts.update(_shifts(line))
                    else:
                        lines.append(line)
            shown[index] = Shown(tuple(lines), frozenset(shifts))
    return shown


def _read(text: str, compacted: bool) -> Iterator[str | Stub]:
    """Every line of a text, the stubs among them parsed."""
    if compacted and text.startswith("\\") and holds_stub(text):
        text, compacted = unescape(text), False  # it passed whole: what reads like a stub in it is the tool's own
    lines = text.split("\n")
    aliases, lines = split_definitions(lines) if compacted else ((), lines)
    for line in lines:
        yield (parse_stub(line) or written_out(line, aliases)) if compacted else line


def _shifts(stub: Stub) -> list[int]:
    """The shifts that a stub prints; lines that repeat several times move by the same amount each time."""
    return [stub.shift * turn for turn in range(1, max(1, stub.times) + 1)] if stub.shift else []
