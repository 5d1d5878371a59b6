"""The references of compacted messages, printed in other words: what a model might read in place of repeated text.

A wording changes only how a stub reads. Where the stubs stand, and what they name, is the plugin's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lam_vllm import Compaction
from lam_vllm.stubs import Stub, format_stub, parse_stub
from lam_vllm.types import Message

OPENING_CHARACTERS = 24


@dataclass(frozen=True, slots=True)
class Reference:
    """A stub and what a wording may quote: the opening words of what it stands for, and of the result it names."""

    stub: Stub
    opening: str
    result_opening: str


Wording = Callable[[Reference], str]


def short(reference: Reference) -> str:
    """As the plugin prints it."""
    return format_stub(reference.stub)


def bare(reference: Reference) -> str:
    """The short one, with no explanation at the first stub of a conversation."""
    return format_stub(reference.stub._replace(note=False))


def quoted(reference: Reference) -> str:
    """The short one, which quotes how the text begins that it stands for."""
    return f"{bare(reference)[:-1].partition(', from «')[0]}, from «{reference.opening}»]"


def named(reference: Reference) -> str:
    """The short one, which quotes how the result begins that it names."""
    result = f"result {reference.stub.result}"
    return bare(reference).replace(result, f"{result} (which begins «{reference.result_opening}»)", 1)


def long(reference: Reference) -> str:
    """A sentence's words: the same as ... above."""
    return _spelled(
        reference.stub,
        _Words(
            result="same as tool result {result} above",
            range="same as {lines} of tool result {result} above",
            same_result="same as its {lines}",
            above="same as {lines} of this tool result",
            following="its next {many} are the same",
            last="the {many} above, {times} more",
        ),
    )


def unchanged(reference: Reference) -> str:
    """The words of a tool that has nothing new to tell: unchanged, see ..."""
    return _spelled(
        reference.stub,
        _Words(
            result="unchanged: see result {result}",
            range="unchanged: see {lines} of result {result}",
            same_result="unchanged: see its {lines}",
            above="unchanged: see {lines} above",
            following="unchanged: see its next {many}",
            last="unchanged: see the {many} above, {times}",
        ),
    )


def silent(_: Reference) -> str:
    """Nothing but an empty line: not a wording, but the floor under all of them."""
    return ""


WORDINGS: dict[str, Wording] = {
    "short": short,
    "bare": bare,
    "quoted": quoted,
    "named": named,
    "unchanged": unchanged,
    "long": long,
    "silent": silent,
}
"""By name; the first is the plugin's, the last says nothing."""


def reworded(original: Sequence[Message], compaction: Compaction, wording: Wording) -> list[Message]:
    """The compacted messages, each stub printed in the words of `wording`; `original` are the messages as they came."""
    references = list(references_of(original, compaction))
    messages = list(compaction.messages)
    for index in {place.message for place in references}:
        mine = (place.reference for place in references if place.message == index)
        lines = messages[index]["content"].split("\n")
        text = "\n".join(wording(next(mine)) if _is_reference(line) else line for line in lines)
        messages[index] = {**messages[index], "content": text}
    return messages


class Placed(NamedTuple):
    """A reference, the message it stands in, and where in the original text of that message its text stood."""

    message: int
    start: int
    end: int
    reference: Reference


def references_of(original: Sequence[Message], compaction: Compaction) -> Iterator[Placed]:
    """The references of a compaction, in order. Tool results must be strings."""
    printed = [str(message["content"]) for message in compaction.messages if message["role"] == "tool"]
    for decision in compaction.decisions:
        if not decision.stub or decision.layer == "alias":
            continue
        stub = parse_stub(decision.stub)
        assert stub is not None, decision.stub
        removed = original[decision.message]["content"][decision.start : decision.end]
        named_result = printed[stub.result - 1] if stub.result else ""
        reference = Reference(stub, _opening(removed), _opening(named_result))
        yield Placed(decision.message, decision.start, decision.end, reference)


def _is_reference(line: str) -> bool:
    stub = parse_stub(line)
    return stub is not None and stub.kind != "alias"


def _opening(text: str) -> str:
    """The first characters of a text, within one line and fit to be quoted."""
    return next((line.strip() for line in text.split("\n") if line.strip()), "")[:OPENING_CHARACTERS].partition("»")[0]


class _Words(NamedTuple):
    """The words of a stub by its kind."""

    result: str
    range: str
    same_result: str
    above: str
    following: str
    last: str


def _spelled(stub: Stub, words: _Words) -> str:
    kinds = words._asdict() | {"next": words.following, "repeat": words.last}
    lines = f"{stub.unit} {stub.first}" if stub.first == stub.last else f"{stub.unit}s {stub.first}-{stub.last}"
    many = stub.unit if stub.many == 1 else f"{stub.many} {stub.unit}s"
    times = "once" if stub.times == 1 else f"{stub.times} times"
    text = kinds[stub.kind].format(result=stub.result, lines=lines, many=many, times=times)
    shift = f", numbers {stub.shift:+d}" if stub.shift else ""
    excerpt = f", from «{stub.excerpt}»" if stub.excerpt is not None else ""
    return f"[{text}{shift}{excerpt}]"
