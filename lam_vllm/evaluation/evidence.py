"""What of the tool output can still be read after a compaction: gold lines and distinct lines."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from lam_vllm.evaluation.readable import Shown, shown_by
from lam_vllm.lines import cut_parts, is_long, number_key
from lam_vllm.reconstruct import ReconstructionError, reconstruct
from lam_vllm.types import Message

LONG_LINE_CHARACTERS = 2_000
GOLD_MIN_CHARACTERS = 4
_WORD = re.compile(r"\\[nt]|\w+|[^\w\s]")
_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


@dataclass(frozen=True, slots=True)
class GoldEvidence:
    """How many lines of the gold patch some observation showed (`witnessed`), and how many one still shows (`kept`).

    `relaxed` also counts lines that are shown once references are written out, where they can be.
    """

    witnessed: int
    kept: int
    relaxed: int
    lost: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DistinctLines:
    """How many different lines the observations had, leading numbers aside, and how many can still be read.

    `in_parts` of the readable ones were cut: each of their parts can be read, no longer all of them in one line.
    `long_*` count the different words of lines over `LONG_LINE_CHARACTERS`, which are not among the lines.
    """

    distinct: int
    readable: int
    in_parts: int
    lost: tuple[str, ...]
    long_distinct: int
    long_readable: int


def gold_lines(
    run_messages: Sequence[Message],
    compacted_messages: Sequence[Message],
    gold_patch: str,
    *,
    observations: str = "tool",
) -> GoldEvidence:
    """Which context and removed lines of the patch stand verbatim within a line of an observation, before and after.

    A line that only a stub leads to counts as lost, except in `relaxed`.
    """
    before = _text(run_messages, observations, compacted=False)
    after = _text(compacted_messages, observations, compacted=True)
    witnessed = [line for line in patch_lines(gold_patch) if line in before]
    lost = tuple(line for line in witnessed if line not in after)
    expanded = _expanded(compacted_messages, observations)
    relaxed = sum(line in after or line in expanded for line in witnessed)
    return GoldEvidence(len(witnessed), len(witnessed) - len(lost), relaxed, lost)


def patch_lines(patch: str) -> list[str]:
    """The different lines that a unified diff takes for granted (context and removed), without sign and blank ends."""
    lines: dict[str, None] = {}
    old = new = 0
    for line in patch.splitlines():
        hunk = _HUNK.match(line)
        if hunk:
            old, new = (int(count or 1) for count in hunk.groups())
        elif old > 0 or new > 0:
            old -= line[:1] in (" ", "-", "")
            new -= line[:1] in (" ", "+", "")
            text = line[1:].strip()
            if line[:1] in (" ", "-") and len(text) >= GOLD_MIN_CHARACTERS:
                lines[text] = None
    return list(lines)


def distinct_lines(
    original: Sequence[Message], compacted: Sequence[Message], *, observations: str = "tool"
) -> DistinctLines:
    """Which lines of the original observations are readable in the compacted ones.

    Readable means that the line's bytes, without a leading line number, stand in a kept line of an observation, short
    names for directories written out, and that, where no kept line has the same number, the observation prints by how
    much the number moved. A line that is long enough to be cut (`lines.cut_text`) is also readable where each of its
    parts is. `lost` holds the first line of each kind that is not, as it was.
    """
    before = shown_by(original, observations, compacted=False)
    after = shown_by(compacted, observations, compacted=True)
    kept = {line for shown in after.values() for line in shown.lines}
    numbers = _numbers_by_body(kept)
    bodies: set[str] = set()
    missing: dict[str, str] = {}
    for message, shown in before.items():
        shifts = after[message].shifts if message in after else frozenset[int]()
        for line in shown.lines:
            if len(line) > LONG_LINE_CHARACTERS:
                continue
            body, number = _body(line)
            bodies.add(body)
            moved = number > 0 and any(number - shift in numbers[body] for shift in shifts)
            if line not in kept and not moved:
                missing[line] = body
    cut = _in_parts(missing, kept)
    lost = {body: line for line, body in reversed(missing.items()) if line not in cut}
    in_parts = len({missing[line] for line in cut} - lost.keys())
    long_distinct, long_readable = _long_words(before.values(), after.values())
    return DistinctLines(
        len(bodies), len(bodies) - len(lost), in_parts, tuple(lost.values())[::-1], long_distinct, long_readable
    )


def _in_parts(lines: Collection[str], kept: Collection[str]) -> set[str]:
    """Those of the lines that were cut, and of which every part stands in a kept line."""
    long = [line for line in lines if is_long(line + "\n")]
    shown = {part for line in kept for part in cut_parts(line)} if long else set()
    return {line for line in long if shown.issuperset(cut_parts(line))}


def _text(messages: Sequence[Message], observations: str, *, compacted: bool) -> str:
    observed = shown_by(messages, observations, compacted=compacted).values()
    return "\n".join(line for shown in observed for line in shown.lines)


def _expanded(messages: Sequence[Message], observations: str) -> str:
    try:
        return _text(reconstruct(messages, observations), observations, compacted=False)
    except ReconstructionError:  # a profile whose references stand for text that is nowhere in the messages
        return ""


def _body(line: str) -> tuple[str, int]:
    key, number = number_key(line)
    return (key if isinstance(key, str) else key[-1]), number


def _numbers_by_body(lines: set[str]) -> defaultdict[str, set[int]]:
    numbers: defaultdict[str, set[int]] = defaultdict(set)
    for line in lines:
        body, number = _body(line)
        if number:
            numbers[body].add(number)
    return numbers


def _long_words(before: Collection[Shown], after: Collection[Shown]) -> tuple[int, int]:
    """How many different words long lines had, and how many still come up, in the order in which they first did."""
    wanted = {
        word
        for shown in before
        for line in shown.lines
        if len(line) > LONG_LINE_CHARACTERS
        for word in _words(_body(line)[0])
    }
    place = {word: index for index, word in enumerate(_first_uses(after, wanted))}
    found = [place[word] for word in _first_uses(before, wanted) if word in place]
    return len(wanted), _longest_rise(found)


def _first_uses(observations: Iterable[Shown], wanted: set[str]) -> list[str]:
    if not wanted:
        return []
    words = (word for shown in observations for line in shown.lines for word in _words(line))
    return list(dict.fromkeys(word for word in words if word in wanted))


def _words(text: str) -> Iterator[str]:
    return (word for word in _WORD.findall(text) if word not in ("\\n", "\\t"))


def _longest_rise(numbers: Sequence[int]) -> int:
    """Length of the longest increasing subsequence."""
    tails: list[int] = []
    for number in numbers:
        place = bisect_left(tails, number)
        tails[place : place + 1] = [number]
    return len(tails)
