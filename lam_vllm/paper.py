"""The paper's own rule (its section 1): near-duplicate windows with stubs, then repeated lines, silently."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from lam_vllm.encoders.request import RequestEncoder
from lam_vllm.memory import ConversationMemory, Place, SeenWindow
from lam_vllm.near_duplicates import Found, find_match
from lam_vllm.prices import Prices
from lam_vllm.stubs import Stub, format_stub
from lam_vllm.types import Decision, Match, Observation, Reason, Window
from lam_vllm.windows import fixed_windows


@dataclass(frozen=True, slots=True)
class PaperPlan:
    """The text that remains of one observation, the decisions, and what they took."""

    text: str
    decisions: tuple[Decision, ...]
    distances: tuple[float, ...] = ()
    boundary_pairs: int = 0
    windows: int = 0
    reasons: frozenset[Reason] = frozenset()
    seen: tuple[SeenWindow, ...] = ()


@dataclass(slots=True)
class _Line:
    """A line of what L1 left: its text and span in the original, or the stub (no span) that L0 skips."""

    text: str
    start: int = -1
    end: int = -1


def plan_paper(
    observation: Observation,
    memory: ConversationMemory,
    prices: Prices,
    encoder: RequestEncoder,
    threshold_cos: float,
    max_windows: int,
    first_window: int,
) -> PaperPlan:
    """L1 over fixed token windows, then L0 over the lines that are left; both remember what they keep."""
    windows = fixed_windows(observation.text, encoder.token_offsets, encoder.window_tokens)
    room = max(0, max_windows - memory.embedded)
    memory.embedded += min(room, len(windows))
    encoder.prepare([observation.text[window.start : window.end] for window in windows[:room]])
    looks = [
        _look_up(observation, first_window + index, window, memory, encoder, threshold_cos)
        for index, window in enumerate(windows[:room])
    ]
    found = [look for look, _ in looks]
    dropped = [
        _drop(observation, window, look.match, memory, prices)
        for window, look in zip(windows, found, strict=False)
        if look.match is not None
    ]
    lines = _remaining_lines(observation.text, dropped)
    stays = _without_repeats(lines, memory)
    repeats = _repeats(observation, lines, stays, memory, prices)
    kept = [line.text for line, stay in zip(lines, stays, strict=True) if stay]
    return PaperPlan(
        "\n".join(kept) if dropped or repeats else observation.text,
        tuple(sorted(dropped + repeats, key=lambda decision: decision.start)),
        tuple(look.match.distance for look in found if look.match is not None),
        sum(look.boundary_pairs for look in found),
        len(windows),
        frozenset[Reason](["cap_windows"] if room < len(windows) else []),
        tuple(seen for _, seen in looks),
    )


def _look_up(
    observation: Observation,
    number: int,
    window: Window,
    memory: ConversationMemory,
    encoder: RequestEncoder,
    threshold_cos: float,
) -> tuple[Found, SeenWindow]:
    start, end = window.start, window.end
    found = find_match(observation.text[start:end], encoder, memory.windows, threshold_cos)
    if found.match is not None:
        return found, memory.drop(observation, start, end, found.embedding, found.match.representative)
    return found, memory.retain(observation, start, end, found.embedding, Place(observation.result, number))


def _drop(
    observation: Observation, window: Window, match: Match, memory: ConversationMemory, prices: Prices
) -> Decision:
    place = memory.places[match.representative]
    assert place is not None, "every window of this profile has a place"
    stub = format_stub(Stub("window", place.result, place.first, place.first))
    return Decision(
        observation.message,
        observation.part,
        observation.result,
        "l1",
        window.start,
        window.end,
        stub,
        place.result,
        (place.first, place.first),
        "window",
        removed_tokens=prices.text(observation.text[window.start : window.end]),
        stub_tokens=prices.stub(stub),
    )


def _remaining_lines(text: str, dropped: list[Decision]) -> list[_Line]:
    """Lines of what L1 left, with a stub line for each dropped window; a window may end inside a line."""
    lines: list[_Line] = []
    start = 0
    for decision in dropped:
        lines += _lines_of(text, start, decision.start, final=False)
        lines.append(_Line(decision.stub))
        start = decision.end
    return lines + _lines_of(text, start, len(text), final=True)


def _lines_of(text: str, start: int, end: int, *, final: bool) -> list[_Line]:
    if start == end:
        return []
    pieces = text[start:end].split("\n")
    if not final and not pieces[-1]:
        pieces.pop()  # the newline before a stub is the separator
    lines = []
    for piece in pieces:
        lines.append(_Line(piece, start, start + len(piece)))
        start += len(piece) + 1
    return lines


def _without_repeats(lines: list[_Line], memory: ConversationMemory) -> list[bool]:
    """L0: for each line whether it stays: stubs do, and the first occurrence of every line in the conversation."""
    index = memory.lines
    stays = []
    for line in lines:
        stays.append(line.start < 0 or line.text not in index.table)
        if line.start < 0:
            index.hole()
        elif stays[-1]:
            index.keep(index.intern([line.text])[0], 0)
    if not any(stay and line.text.strip() for stay, line in zip(stays, lines, strict=True)):
        _keep_one(lines, stays, memory)
    return stays


def _keep_one(lines: list[_Line], stays: list[bool], memory: ConversationMemory) -> None:
    """An observation never becomes empty: its first line with text stays."""
    for place, line in enumerate(lines):
        if line.text.strip():
            stays[place] = True
            memory.lines.keep(memory.lines.intern([line.text])[0], 0)
            return


def _repeats(
    observation: Observation, lines: list[_Line], stays: list[bool], memory: ConversationMemory, prices: Prices
) -> list[Decision]:
    """One decision per run of removed lines, naming where its first line stands."""
    decisions = []
    for gone, run in groupby(zip(lines, stays, strict=True), key=lambda pair: not pair[1]):
        if not gone:
            continue
        removed = [line for line, _ in run]
        section = memory.section_at(memory.lines.first[memory.lines.table[removed[0].text]])
        decisions.append(
            Decision(
                observation.message,
                observation.part,
                observation.result,
                "l0",
                removed[0].start,
                removed[-1].end,
                "",
                section.result,
                None,
                removed_tokens=prices.text("\n".join(line.text for line in removed) + "\n"),
            )
        )
    return decisions
