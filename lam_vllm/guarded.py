"""Near-duplicate windows of whole lines, of which no distinct line is lost (profile `guarded`).

`exact` plans first. A window then becomes one stub, which names the lines of an earlier stretch that are gone, and the
lines that are new, wherever that is shorter than what `exact` leaves of it. The earlier stretch is the one that shares
most lines with the window or, where that does not pay, an earlier window that the encoder finds near.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate
from typing import NamedTuple

from lam_vllm.config import CompactorConfig
from lam_vllm.cuts import Cut
from lam_vllm.encoders.request import RequestEncoder
from lam_vllm.memory import ConversationMemory, Place, Section, SeenWindow
from lam_vllm.near_duplicates import Found, find_match
from lam_vllm.prices import MARGIN_TOKENS, Prices
from lam_vllm.runs import RunPlanner
from lam_vllm.shared_lines import find_stretch
from lam_vllm.stubs import Stub, format_stub
from lam_vllm.types import Layer, Observation, Reason
from lam_vllm.windows import line_windows

LEAST_STUB_TOKENS = 14
"""A window of which `exact` leaves no more than this and the margin cannot pay: it is not encoded."""

MOST_LINES = 1_000
"""Windows of more lines (blank ones cost no encoder tokens) are left to `exact`: aligning them is quadratic."""
MOST_GONE = 8
"""A stub that would name more gaps than this is not something anybody reads."""


class GuardedPlan(NamedTuple):
    """The cuts of one observation, and what finding them took."""

    cuts: list[Cut]
    distances: tuple[float, ...] = ()
    boundary_pairs: int = 0
    windows: int = 0
    reasons: frozenset[Reason] = frozenset()
    seen: tuple[SeenWindow, ...] = ()


class _Span(NamedTuple):
    """Pieces `start:stop` that one window covers, and the window's text, characters `at:end` of the observation."""

    start: int
    stop: int
    text: str
    at: int
    end: int


@dataclass(slots=True)
class _Lookup:
    """A window; what the encoder found, where it was asked; and the cut that is better than what `exact` leaves."""

    span: _Span
    found: Found | None = None
    cut: Cut | None = None


class GuardedPlanner:
    """Plans one observation; `new_planner` gives a fresh `RunPlanner` over the same pieces and memory."""

    def __init__(
        self,
        memory: ConversationMemory,
        section: Section,
        new_planner: Callable[[], RunPlanner],
        prices: Prices,
        encoder: RequestEncoder,
        config: CompactorConfig,
        reach: int,
    ) -> None:
        self._memory = memory
        self._section = section
        self._new_planner = new_planner
        self._prices = prices
        self._encoder = encoder
        self._threshold_cos = config.threshold_cos if config.threshold_cos is not None else encoder.threshold_cos
        self._max_windows = config.max_windows
        self._min_tokens = config.min_tokens
        self._reach = reach
        self._reasons: set[Reason] = set()

    def plan(self, observation: Observation) -> GuardedPlan:
        """Cuts for the observation, which is appended to the memory as printed."""
        size = self._memory.size()
        planner = self._new_planner()
        exact = planner.plan(0, len(planner.pieces))
        found = self._look_up(planner, exact, _spans(observation.text, planner.pieces, self._encoder))
        chosen = [lookup.cut for lookup in found if lookup.cut is not None]
        cuts, size = exact, size._replace(embedded=self._memory.embedded)
        if chosen:
            self._memory.rollback(size)
            planner = self._new_planner()
            cuts = _weave(planner, chosen)
            pieces = planner.printed
            if self._left(pieces, cuts, 0, len(pieces)) >= self._left(pieces, exact, 0, len(pieces)):
                self._memory.rollback(size)
                planner, chosen = self._new_planner(), []
                cuts = planner.plan(0, len(planner.pieces))
        seen = self._retain(observation, found, cuts, chosen)
        self._reasons |= planner.refused
        asked = [lookup.found for lookup in found if lookup.found is not None]
        return GuardedPlan(
            cuts,
            tuple(cut.distance for cut in chosen if cut.layer == "l1"),
            sum(found.boundary_pairs for found in asked),
            len(asked),
            frozenset(self._reasons),
            seen,
        )

    def _look_up(self, planner: RunPlanner, exact: list[Cut], spans: list[_Span]) -> list[_Lookup]:
        """What becomes of the windows of which `exact` leaves enough to be worth a look.

        Those that the encoder is asked about are named to it together, before the first answer is needed.
        """
        lookups = [
            _Lookup(span, cut=self._shared(planner, exact, span))
            for span in spans
            if self._left(planner.printed, exact, span.start, span.stop) > LEAST_STUB_TOKENS + MARGIN_TOKENS
        ]
        open_ones = [lookup for lookup in lookups if lookup.cut is None]
        room = max(0, self._max_windows - self._memory.embedded)
        asked = open_ones[:room]
        if len(open_ones) > room:
            self._reasons.add("cap_windows")
        self._memory.embedded += len(asked)
        self._encoder.prepare([lookup.span.text for lookup in asked])
        for lookup in asked:
            self._ask_encoder(planner, exact, lookup)
        return lookups

    def _shared(self, planner: RunPlanner, exact: list[Cut], span: _Span) -> Cut | None:
        """The cut that names the earlier stretch which shares most lines with the window, if it pays."""
        start, stop = _inside(exact, span)
        if not start < stop <= start + MOST_LINES:
            return None
        keys = [planner.key(place)[0] for place in range(start, stop)]
        tokens = [self._prices.piece(piece) for piece in planner.printed[start:stop]]
        place = find_stretch(self._memory, self._section.start, keys, tokens)
        return self._alternative(planner, exact, span, place, "l0") if place else None

    def _ask_encoder(self, planner: RunPlanner, exact: list[Cut], lookup: _Lookup) -> None:
        """The window's embedding and match, and the cut that the match allows."""
        lookup.found = found = find_match(lookup.span.text, self._encoder, self._memory.windows, self._threshold_cos)
        if found.match is not None:
            place = self._memory.places[found.match.representative]
            assert place is not None, "only windows that stand whole in the prompt are eligible"
            lookup.cut = self._alternative(planner, exact, lookup.span, place, "l1", found.match.distance)

    def _alternative(
        self, planner: RunPlanner, exact: list[Cut], span: _Span, place: Place, layer: Layer, distance: float = 0.0
    ) -> Cut | None:
        """One stub and the lines in which the window differs, where that costs less than what `exact` leaves."""
        if place.start < self._reach:
            self._reasons.add("too_far")
            return None
        start, stop = _inside(exact, span)
        if stop <= start or max(stop - start, place.lines) > MOST_LINES:
            return None
        shift = self._common_shift(planner, start, stop, place)
        gone, kept = self._difference(planner, start, stop, place, shift)
        if len(gone) > MOST_GONE:
            return None
        last = place.first + place.lines - 1
        stub = Stub("like", place.result, place.first, last, len(kept), shift=shift, gone=gone)
        text = format_stub(stub)
        removed = self._prices.run(planner.pieces[start:stop]) - self._prices.run([planner.pieces[i] for i in kept])
        cut = Cut(
            start, stop, stub, text, place.result, (place.first, last), "line", layer, shift, distance, kept, removed
        )
        return cut if self._pays(planner.printed, exact, cut) else None

    def _pays(self, pieces: list[str], exact: list[Cut], cut: Cut) -> bool:
        """Whether the cut takes out `min_tokens`, and saves the margin over the text as it is and as `exact` has it."""
        if cut.removed_tokens < self._min_tokens:
            self._reasons.add("below_min_tokens")
            return False
        price = self._prices.stub(cut.text)
        kept = self._prices.run([pieces[place] for place in cut.kept])
        left = self._left(pieces, exact, cut.start, cut.stop)
        if price + MARGIN_TOKENS >= min(left - kept, cut.removed_tokens):
            self._reasons.add("not_shorter")
            return False
        return True

    def _difference(
        self, planner: RunPlanner, start: int, stop: int, place: Place, shift: int
    ) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
        """Printed lines of the representative that the window lacks (ranges), and pieces that it has besides the rest.

        The lines are aligned in order, so that a moved line is told like a changed one: what the stub says is true.
        """
        before = self._lines_at(place)
        after = [(line, number - shift if number else 0) for line, number in map(planner.key, range(start, stop))]
        gone: list[tuple[int, int]] = []
        kept: list[int] = []
        for what, i, j, k, m in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            if what == "equal":
                continue
            if j > i:
                gone.append((place.first + i, place.first + j - 1))
            kept += range(start + k, start + m)
        return tuple(gone), tuple(kept)

    def _common_shift(self, planner: RunPlanner, start: int, stop: int, place: Place) -> int:
        """The commonest difference of leading numbers between these lines and the representative's."""
        numbers = dict(self._lines_at(place))
        differences = Counter(
            number - numbers[line]
            for line, number in map(planner.key, range(start, stop))
            if number and numbers.get(line)
        )
        return min(differences, key=lambda shift: (-differences[shift], abs(shift), shift)) if differences else 0

    def _lines_at(self, place: Place) -> list[tuple[int, int]]:
        stop = place.start + place.lines
        return list(
            zip(self._memory.lines.ids[place.start : stop], self._memory.lines.numbers[place.start : stop], strict=True)
        )

    def _left(self, pieces: list[str], cuts: list[Cut], start: int, stop: int) -> int:
        """Tokens that these cuts leave of pieces `start:stop`, their stubs included."""
        cuts = [cut for cut in cuts if cut.start < stop and cut.stop > start]
        gone = {place for cut in cuts for place in range(cut.start, cut.stop) if place not in cut.kept}
        kept = self._prices.run([pieces[place] for place in range(start, stop) if place not in gone])
        return kept + sum(self._stub(cut) for cut in cuts)

    def _stub(self, cut: Cut) -> int:
        """Price of a stub without the note, which the conversation pays once and not for this window."""
        return self._prices.stub(format_stub(cut.stub._replace(note=False)))

    def _retain(
        self, observation: Observation, lookups: list[_Lookup], cuts: list[Cut], dropped: list[Cut]
    ) -> tuple[SeenWindow, ...]:
        """Keep the windows that were not dropped; those that now stand whole in the prompt can be referred to."""
        seen = []
        for lookup in lookups:
            span, found = lookup.span, lookup.found
            if found is None:
                continue
            window = observation, span.at, span.end, found.embedding
            if found.match is not None and lookup.cut in dropped:
                seen.append(self._memory.drop(*window, found.match.representative))
                continue
            touched = any(cut.start < span.stop and cut.stop > span.start for cut in cuts)
            seen.append(self._memory.retain(*window, None if touched else self._place(span, cuts)))
        return tuple(seen)

    def _place(self, span: _Span, cuts: list[Cut]) -> Place:
        """Where untouched lines were printed: lines before them, less those cut, plus a stub and kept lines per cut."""
        before = [cut for cut in cuts if cut.stop <= span.start]
        moved = span.start + sum(1 + len(cut.kept) - (cut.stop - cut.start) for cut in before)
        section = self._section
        return Place(section.result, section.first_line + moved, span.stop - span.start, section.start + moved)


def _spans(text: str, pieces: list[str], encoder: RequestEncoder) -> list[_Span]:
    """Windows of whole lines; a window that holds a part of a line is left to `exact`."""
    starts = {offset: place for place, offset in enumerate(accumulate(map(len, pieces), initial=0))}
    starts[len(text)] = len(pieces)
    spans = []
    for window in line_windows(text, encoder.token_offsets, encoder.window_tokens):
        start, stop = starts.get(window.start), starts.get(window.end)
        if start is not None and stop is not None and stop > start:
            spans.append(_Span(start, stop, text[window.start : window.end], window.start, window.end))
    return spans


def _inside(exact: list[Cut], span: _Span) -> tuple[int, int]:
    """The window less what runs across its ends: those lines stay with their runs."""
    start, stop = span.start, span.stop
    for cut in exact:
        if cut.start < start < cut.stop:
            start = cut.stop
        if cut.start < stop < cut.stop:
            stop = cut.start
    return start, stop


def _weave(planner: RunPlanner, chosen: list[Cut]) -> list[Cut]:
    """Exact runs around the chosen windows, in order."""
    cuts: list[Cut] = []
    place = 0
    for cut in chosen:
        cuts += planner.plan(place, cut.start)
        planner.put(cut)
        planner.leave()
        cuts.append(cut)
        place = cut.stop
    return cuts + planner.plan(place, len(planner.pieces))
