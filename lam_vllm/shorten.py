"""One text of an observation with what repeats in it replaced (profiles `exact` and `guarded`)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from lam_vllm.aliases import Aliases, choose_aliases, definitions, longest_alias, shortened
from lam_vllm.config import CompactorConfig
from lam_vllm.cuts import Cut, decide, render
from lam_vllm.encoders.request import RequestEncoder
from lam_vllm.guarded import GuardedPlan, GuardedPlanner
from lam_vllm.lines import Unit, cut_text
from lam_vllm.memory import ConversationMemory, SeenWindow
from lam_vllm.prices import MARGIN_TOKENS, Prices
from lam_vllm.runs import RunPlanner
from lam_vllm.types import Decision, Observation, Reason


class Admission(NamedTuple):
    """The text as it is emitted, every replacement in it, and what finding them took.

    `printed` is the number of lines (windows in `paper`) that the text takes in the prompt.
    """

    text: str = ""
    decisions: tuple[Decision, ...] = ()
    reasons: frozenset[Reason] = frozenset()
    distances: tuple[float, ...] = ()
    boundary_pairs: int = 0
    printed: int = 0
    lines: int = 0
    windows: int = 0
    seen: tuple[SeenWindow, ...] = ()

    def plus(self, other: Admission) -> Admission:
        """Sums over two texts of one result."""
        return Admission(
            "",
            self.decisions + other.decisions,
            self.reasons | other.reasons,
            self.distances + other.distances,
            self.boundary_pairs + other.boundary_pairs,
            self.printed + other.printed,
            self.lines + other.lines,
            self.windows + other.windows,
            self.seen + other.seen,
        )


class Surroundings(NamedTuple):
    """Where a text stands: `printed` lines of its result before it; whether it is the result's `sole` text; and
    `reach`, the earliest array position that a reference in it may name."""

    printed: int
    sole: bool
    reach: int


@dataclass(slots=True)
class Shortener:
    """Shortens one text; what it then shows is in the memory."""

    observation: Observation
    memory: ConversationMemory
    config: CompactorConfig
    prices: Prices
    encoder: RequestEncoder | None
    place: Surroundings

    def shorten(self) -> Admission:
        """The text as emitted. Aliases are given only where they pay for themselves in the lines that stay."""
        pieces, unit = cut_text(self.observation.text)
        aliases: Aliases = ()
        if self.config.directory_aliases and unit == "line":
            aliases = choose_aliases(pieces, self.memory.lines.table)
        while aliases:
            size = self.memory.size()
            printed = [shortened(piece, aliases) for piece in pieces]
            plan = self._plan(pieces, printed, unit, len(aliases))
            saved = self._saved(pieces, printed, plan.cuts, aliases)
            paying = tuple(alias for alias in aliases if saved[alias] > self._price(alias) + MARGIN_TOKENS)
            if paying == aliases:
                return self._admission(pieces, printed, unit, plan, [(alias, saved[alias]) for alias in aliases])
            self.memory.rollback(size)
            aliases = paying
        return self._admission(pieces, pieces, unit, self._plan(pieces, pieces, unit, 0), [])

    def _plan(self, pieces: list[str], printed: list[str], unit: Unit, defined: int) -> GuardedPlan:
        """The cuts in a text that begins with `defined` lines of definitions."""
        memory, encoder = self.memory, self.encoder
        section = memory.open_section(self.observation.result, self.place.printed + defined + 1, unit)

        def new_planner() -> RunPlanner:
            floor, reach = self.config.min_tokens, self.place.reach
            return RunPlanner(memory, section, pieces, self.prices, floor, reach, printed)

        if encoder is None or unit == "part" or self.config.threshold_cos is None:
            planner = new_planner()
            return GuardedPlan(planner.plan(0, len(pieces)), reasons=frozenset(planner.refused))
        guarded = GuardedPlanner(memory, section, new_planner, self.prices, encoder, self.config, self.place.reach)
        return guarded.plan(self.observation)

    def _saved(self, pieces: list[str], printed: list[str], cuts: list[Cut], aliases: Aliases) -> Counter[str]:
        """Tokens that each alias saves in the lines that stay."""
        saved: Counter[str] = Counter()
        gone = {place for cut in cuts for place in range(cut.start, cut.stop) if place not in cut.kept}
        for place, (piece, short) in enumerate(zip(pieces, printed, strict=True)):
            if piece is not short and place not in gone:
                saved[longest_alias(piece, aliases)] += self.prices.piece(piece) - self.prices.piece(short)
        return saved

    def _admission(
        self, pieces: list[str], printed: list[str], unit: Unit, plan: GuardedPlan, saved: list[tuple[str, int]]
    ) -> Admission:
        cuts, aliases = plan.cuts, tuple(alias for alias, _ in saved)
        changed = bool(cuts or aliases)
        top = definitions(aliases)
        return Admission(
            "\n".join([*top, render(printed, unit, cuts)]) if changed else self.observation.text,
            (*self._defined(top, saved), *decide(self.observation, pieces, cuts, self.prices)) if changed else (),
            _reasons(changed, plan.reasons),
            plan.distances,
            plan.boundary_pairs,
            len(top) + len(pieces) + sum(1 + len(cut.kept) - (cut.stop - cut.start) for cut in cuts),
            len(pieces),
            plan.windows,
            plan.seen,
        )

    def _defined(self, top: list[str], saved: list[tuple[str, int]]) -> list[Decision]:
        """The record of each alias: nothing at the top of the text became its definition."""
        message, part, result = self.observation[:3]
        return [
            Decision(message, part, result, "alias", 0, 0, line, result, None, removed_tokens=tokens, stub_tokens=price)
            for line, (alias, tokens) in zip(top, saved, strict=True)
            for price in [self._price(alias)]
        ]

    def _price(self, alias: str) -> int:
        return self.prices.stub(definitions((alias,))[0])


def _reasons(changed: bool, refused: frozenset[Reason]) -> frozenset[Reason]:
    """Why an observation was not shortened (the strongest reason alone); caps are named in any case."""
    capped = refused & {"cap_windows"}
    if changed:
        return capped
    for reason in ("not_shorter", "below_min_tokens", "too_far"):
        if reason in refused:
            return capped | frozenset[Reason]([reason])
    return capped | frozenset[Reason](["no_repeat"])
