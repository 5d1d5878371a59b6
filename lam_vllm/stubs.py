"""The wording of references: what a model reads in place of repeated text, and how it is read back.

One line each. `R` is the ordinal of a tool result counted from 1; `A-B` counts lines (or parts, where a long line
was cut) of that result as printed in the prompt. Nothing in a stub depends on the turn, the time or the caller.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Kind = Literal["result", "range", "same_result", "next", "above", "repeat", "like", "window", "alias"]

NOTE = " (the tool printed this again, unchanged; it is left out here and stands there; results count from the first)"
"""Follows the first stub of a conversation that says `repeats`; the prefix fixes which one that is."""
EXCERPT_CHARACTERS = 12
DIRECTORY_CHARACTERS = 200


class Stub(NamedTuple):
    """A reference. Which fields are set depends on `kind`; unused ones stay 0.

    result       result R repeats                       above   lines A-B of this text repeat
    range        lines A-B of result R repeat           window  like encoder window A of result R (profile `paper`)
    same_result  lines A-B of the result last named
    like         lines A-B of result R, without those in `gone`, and with the `many` lines that follow the stub
    next         `many` lines from where the last reference would go on
    repeat       the last `many` lines of this text, `times` times more
    alias        `@first/` at the start of a line below is the directory `prefix`; only at the top of a text
    """

    kind: Kind
    result: int = 0
    first: int = 0
    last: int = 0
    many: int = 0
    times: int = 0
    shift: int = 0
    unit: Literal["line", "part"] = "line"
    excerpt: str | None = None
    note: bool = False
    gone: tuple[tuple[int, int], ...] = ()
    prefix: str = ""


def format_stub(stub: Stub) -> str:
    """The stub as one line of text."""
    numbers = f", numbers {stub.shift:+d}" if stub.shift else ""
    excerpt = f", from «{stub.excerpt}»" if stub.excerpt is not None else ""
    return f"[{_words(stub)}{numbers}{excerpt}]{NOTE if stub.note else ''}"


def parse_stub(line: str) -> Stub | None:
    """The stub that a whole line is, or None."""
    found = _STUB.fullmatch(line)
    if found is None:
        return None
    stub = _read(found)
    return stub if format_stub(stub) == line else None


def holds_stub(text: str) -> bool:
    """Whether a text, leading backslashes aside, holds anything that reads like a stub, alone on a line or not."""
    if "repeat" not in text and "[like " not in text and "[@" not in text:
        return False
    return _STUB.search(text) is not None


def escape(text: str) -> str | None:
    """The text as it is emitted when it must pass whole: marked if it holds a stub; None if it may be shortened.

    A marked text begins with one backslash more. Text that begins with a backslash of its own is never shortened,
    so that the mark can be taken away again (`unescape`) without asking anybody.
    """
    if holds_stub(text):
        return "\\" + text
    return text if text.startswith("\\") else None


def unescape(text: str) -> str:
    """The inverse of `escape` for a text that begins with a backslash."""
    return text[1:] if text.startswith("\\") and holds_stub(text) else text


def excerpt_of(text: str) -> str:
    """The first characters of a part, as a stub quotes them."""
    return text[:EXCERPT_CHARACTERS].partition("»")[0].removesuffix("\n")


def _words(stub: Stub) -> str:
    lines = _lines(stub)
    verb = "repeats" if stub.first == stub.last else "repeat"
    match stub.kind:
        case "result":
            return f"result {stub.result} repeats"
        case "range":
            return f"{lines} of result {stub.result} {verb}"
        case "same_result":
            return f"{lines} {verb}"
        case "next":
            return f"1 {stub.unit} repeats" if stub.many == 1 else f"{stub.many} {stub.unit}s repeat"
        case "above":
            return f"{lines} above {verb}"
        case "repeat":
            what = f"{stub.unit} above repeats" if stub.many == 1 else f"{stub.many} {stub.unit}s above repeat"
            return f"{what} {stub.times} times"
        case "like":
            return f"like {lines} of result {stub.result}{_gone(stub.gone)}{_added(stub.many)}"
        case "window":
            return f"like window {stub.first} of result {stub.result}"
        case "alias":
            return f"@{stub.first}/ is {stub.prefix} below"


def _lines(stub: Stub) -> str:
    if stub.first == stub.last:
        return f"{stub.unit} {stub.first}"
    return f"{stub.unit}s {stub.first}-{stub.last}"


def _gone(ranges: tuple[tuple[int, int], ...]) -> str:
    if not ranges:
        return ""
    several = len(ranges) > 1 or ranges[0][0] != ranges[0][1]
    places = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
    return f", without line{'s' if several else ''} {places}"


def _added(lines: int) -> str:
    if lines == 0:
        return ""
    return ", with the line below" if lines == 1 else f", with the {lines} lines below"


_N = "[1-9][0-9]{0,9}"


def _range(name: str) -> str:
    return f"(?P<{name}unit>line|part)s? (?P<{name}first>{_N})(?:-(?P<{name}last>{_N}))?"


_GONE = f", without lines? (?P<gone>{_N}(?:-{_N})?(?:, {_N}(?:-{_N})?)*)"
_ADDED = f", with the (?:line|(?P<count>{_N}) lines) below"
_FORMS = (
    rf"result (?P<whole>{_N}) repeats",
    _range("") + rf"(?: of result (?P<result>{_N})|(?P<above> above))? repeats?",
    rf"(?P<next>{_N}) (?P<nextunit>line|part)s? repeats?",
    rf"(?:(?P<period>{_N}) )?(?P<periodunit>line|part)s? above repeats? (?P<times>{_N}) times",
    f"like {_range('like')} of result (?P<like>{_N})(?:{_GONE})?(?P<added>{_ADDED})?",
    rf"like window (?P<window>{_N}) of result (?P<holder>{_N})",
    rf"@(?P<alias>{_N})/ is (?P<prefix>[^\s\[\]]{{0,{DIRECTORY_CHARACTERS}}}/) below",
)
_STUB = re.compile(
    r"\[(?:" + "|".join(_FORMS) + rf")(?:, numbers (?P<shift>[+-]{_N}))?(?:, from «(?P<excerpt>[^»\n]{{0,"
    rf"{EXCERPT_CHARACTERS}}})»)?\](?P<note>{re.escape(NOTE)})?"
)


def _read(found: re.Match[str]) -> Stub:
    group = found.groupdict()

    def number(name: str) -> int:
        return int(group[name] or 0)

    shift, excerpt, note = number("shift"), group["excerpt"], group["note"] is not None
    units = (group["unit"], group["nextunit"], group["periodunit"])
    unit: Literal["line", "part"] = "part" if "part" in units else "line"
    if group["whole"]:
        return Stub("result", result=number("whole"), shift=shift, unit=unit, excerpt=excerpt, note=note)
    if group["first"]:
        kind: Kind = "above" if group["above"] else "range" if group["result"] else "same_result"
        first, last = number("first"), number("last") or number("first")
        return Stub(kind, number("result"), first, last, shift=shift, unit=unit, excerpt=excerpt, note=note)
    if group["next"]:
        return Stub("next", many=number("next"), shift=shift, unit=unit, excerpt=excerpt, note=note)
    if group["times"]:
        period = number("period") or 1
        return Stub("repeat", many=period, times=number("times"), shift=shift, unit=unit, excerpt=excerpt, note=note)
    if group["like"]:
        added = (number("count") or 1) if group["added"] else 0
        first, last = number("likefirst"), number("likelast") or number("likefirst")
        return Stub("like", number("like"), first, last, added, shift=shift, note=note, gone=_ranges(group["gone"]))
    if group["alias"]:
        return Stub("alias", first=number("alias"), prefix=group["prefix"], note=note)
    return Stub("window", number("holder"), number("window"), number("window"), note=note)


def _ranges(text: str | None) -> tuple[tuple[int, int], ...]:
    if text is None:
        return ()
    pairs = (place.partition("-") for place in text.split(", "))
    return tuple((int(first), int(last or first)) for first, _, last in pairs)
