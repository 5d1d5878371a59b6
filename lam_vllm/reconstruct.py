"""Original text out of compacted messages alone (profile `exact`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lam_vllm.aliases import Aliases, split_definitions, written_out
from lam_vllm.errors import LamError
from lam_vllm.lines import Unit, cut_parts, cut_text, is_long, join_pieces, renumbered
from lam_vllm.messages import is_observation, observed_texts, with_texts
from lam_vllm.stubs import Stub, holds_stub, parse_stub, unescape
from lam_vllm.types import Message


class ReconstructionError(LamError, ValueError):
    """The messages hold a reference to text that does not stand where the reference says."""


def reconstruct(messages: Sequence[Message], observations: str = "tool") -> list[Any]:
    """The messages as they were before compaction with profile `exact`, byte for byte.

    `observations` must be what the compaction used. Messages are copied only where text was put back.

    Raises:
        ReconstructionError: a reference names text that is not there (the messages were cut or edited).
    """
    reader = _Reader()
    return [reader.read(messages, index, observations) for index in range(len(messages))]


def look_up(
    messages: Sequence[Message], result: int, first_line: int, last_line: int, observations: str = "tool"
) -> str:
    """Lines `first_line` to `last_line` of tool result `result`, as printed in `messages`, references written out.

    Raises:
        ReconstructionError: there is no such result or line.
    """
    reader = _Reader()
    for index in range(len(messages)):
        reader.read(messages, index, observations)
    return join_pieces([piece for slot in reader.slots(result, first_line, last_line) for piece in slot.pieces])


class _Slot:
    """One printed line of a result: what it stands for, and whether it is a stub (which nothing may refer to)."""

    __slots__ = ("pieces", "stub")

    def __init__(self, pieces: list[str], stub: bool) -> None:
        self.pieces = pieces
        self.stub = stub


class _Reader:
    """Reads messages in order and remembers every result's printed lines."""

    def __init__(self) -> None:
        self._results: list[list[_Slot]] = []

    def read(self, messages: Sequence[Message], index: int, observations: str) -> Any:
        if not is_observation(messages, index, observations):
            return messages[index]
        self._results.append([])
        texts = {}
        for observation in observed_texts(messages, index, len(self._results), ())[0]:
            original = self._text(observation.text)
            if original != observation.text:
                texts[observation.part] = original
        return with_texts(messages[index], texts) if texts else messages[index]

    def printed(self, result: int) -> int:
        """How many printed lines a result has."""
        if not 1 <= result <= len(self._results):
            raise ReconstructionError(f"result {result} does not exist; there are {len(self._results)}")
        return len(self._results[result - 1])

    def slots(self, result: int, first: int, last: int) -> list[_Slot]:
        """Printed lines `first` to `last` of a result."""
        count = self.printed(result)
        if not 1 <= first <= last <= count:
            raise ReconstructionError(f"lines {first}-{last} of result {result} do not exist; it has {count}")
        return self._results[result - 1][first - 1 : last]

    def _text(self, text: str) -> str:
        own = self._results[-1]
        if text.startswith("\\") or not holds_stub(text):
            original = unescape(text)
            own.extend(_Slot([piece], False) for piece in cut_text(original)[0])
            return original
        return join_pieces(_Expansion(self, own, len(self._results)).expand(text))


class _Expansion:
    """One text with stubs, read from top to bottom as `runs.RunPlanner` wrote it."""

    def __init__(self, reader: _Reader, own: list[_Slot], result: int) -> None:
        self._reader = reader
        self._own = own
        self._result = result
        self._next = (0, 0)  # result and line where the last reference would go on; result 0: nowhere
        self._named = 0
        self._shift = 0
        self._aliases: Aliases = ()
        self._inside = False  # whether what was read so far ends inside a line

    def expand(self, text: str) -> list[str]:
        """The text's original pieces."""
        lines = self._without_definitions(text.split("\n"))
        stubs = [(place, stub) for place, line in enumerate(lines) if (stub := parse_stub(line)) is not None]
        unit: Unit = "part" if any(stub.excerpt is not None for _, stub in stubs) else "line"
        pieces: list[str] = []
        start = 0
        for place, stub in stubs:
            if place > start:
                pieces += self._keep("\n".join(lines[start:place]), unit, final=False)
            found = self._resolve(stub)
            self._inside = not found[-1].endswith("\n")
            self._own.append(_Slot(found, True))
            pieces += found
            start = place + 1
        if start < len(lines):
            pieces += self._keep("\n".join(lines[start:]), unit, final=True)
        return pieces

    def _without_definitions(self, lines: list[str]) -> list[str]:
        """The lines behind those that define short names; each of the latter takes a printed line."""
        prefixes, rest = split_definitions(lines)
        self._aliases = prefixes
        self._own.extend(_Slot([], True) for _ in prefixes)
        return rest

    def _keep(self, text: str, unit: Unit, *, final: bool) -> list[str]:
        if unit == "line":
            pieces = [written_out(line, self._aliases) + "\n" for line in text.split("\n")]
        else:
            pieces = self._parts(text + "\n" if final else text)
        self._own.extend(_Slot([piece], False) for piece in pieces)
        result, line = self._next
        self._next = (result, line + len(pieces))
        return pieces

    def _parts(self, text: str) -> list[str]:
        """Kept text of an observation with cut lines: what a stub cut off, before or behind, was part of a long one."""
        lines = text.split("\n")
        rest = lines.pop()
        pieces: list[str] = []
        for line in lines:
            broken = self._inside or is_long(line + "\n")
            pieces += cut_parts(line + "\n") if broken else [line + "\n"]
            self._inside = False
        if rest:
            pieces += cut_parts(rest)
            self._inside = True
        return pieces

    def _resolve(self, stub: Stub) -> list[str]:
        if stub.kind == "repeat":
            return self._repeated(stub)
        shift = stub.shift
        match stub.kind:
            case "result":
                where = (stub.result, 1, self._reader.printed(stub.result))
            case "range":
                self._named = stub.result
                where = (stub.result, stub.first, stub.last)
            case "same_result":
                where = (self._named, stub.first, stub.last)
            case "above":
                where = (self._result, stub.first, stub.last)
            case "next":
                shift = shift or self._shift
                where = (self._next[0], self._next[1], self._next[1] + stub.many - 1)
            case _:
                raise ReconstructionError(f"a stub of kind {stub.kind!r} stands for text that is not kept")
        self._next, self._shift = (where[0], where[2] + 1), shift
        return _shifted(self._plain(*where), shift)

    def _repeated(self, stub: Stub) -> list[str]:
        count = len(self._own)
        period = self._plain(self._result, count - stub.many + 1, count)
        self._next, self._shift = (0, 0), 0
        return [piece for turn in range(1, stub.times + 1) for piece in _shifted(period, stub.shift * turn)]

    def _plain(self, result: int, first: int, last: int) -> list[str]:
        slots = self._reader.slots(result, first, last)
        if any(slot.stub for slot in slots):
            raise ReconstructionError(f"lines {first}-{last} of result {result} hold a stub")
        return [piece for slot in slots for piece in slot.pieces]


def _shifted(pieces: list[str], shift: int) -> list[str]:
    return [renumbered(piece, shift) for piece in pieces]
