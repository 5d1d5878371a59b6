"""What becomes of one text of an observation, by the rule of the profile."""

from __future__ import annotations

import sys
from typing import NamedTuple

from lam_vllm.config import CompactorConfig
from lam_vllm.cuts import Cut, decide, render
from lam_vllm.encoders.base import Encoder
from lam_vllm.guarded import GuardedPlan, GuardedPlanner
from lam_vllm.lines import cut_text
from lam_vllm.memory import ConversationMemory, Section
from lam_vllm.paper import plan_paper
from lam_vllm.prices import Prices
from lam_vllm.runs import RunPlanner
from lam_vllm.stubs import escape
from lam_vllm.types import Decision, Observation, Reason

DECISION_BYTES = 500
"""A decision with its stub, roughly."""


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
    encoder_calls: int = 0

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
            self.encoder_calls + other.encoder_calls,
        )


class Surroundings(NamedTuple):
    """Where a text stands: `printed` lines of its result before it; whether it is the result's `sole` text; and
    `reach`, the earliest array position that a reference in it may name."""

    printed: int
    sole: bool
    reach: int


def admit_text(
    observation: Observation,
    memory: ConversationMemory,
    config: CompactorConfig,
    prices: Prices,
    encoder: Encoder | None,
    place: Surroundings,
) -> Admission:
    """The text as emitted; what it now shows is in the memory afterwards."""
    text = observation.text
    whole = escape(text)
    if _bytes(text) > config.max_observation_bytes:
        return _pass(text if whole is None else whole, text, "cap_observation_bytes")
    if whole is not None and whole != text:
        return _pass(whole, text, "stub_like_input")
    if not text or text.isspace():
        return _pass(text, text, "no_repeat")
    pieces, unit = cut_text(text)
    section = memory.open_section(observation.result, place.printed + 1, unit)
    memory.text_bytes += sys.getsizeof(text)
    if observation.excluded or whole is not None:
        admission = _keep_whole(observation, pieces, memory, section, prices)
    elif config.profile == "paper" and encoder is not None:
        admission = _paper(observation, memory, config, prices, encoder, place.printed)
    else:
        admission = _shorten(observation, pieces, memory, section, config, prices, encoder, place.reach)
    if place.sole and not admission.decisions and config.profile != "paper":
        memory.whole[section.start] = admission.printed
    if admission.decisions:
        memory.text_bytes += sys.getsizeof(admission.text) + DECISION_BYTES * len(admission.decisions)
    memory.lines.hole()
    return admission


def _pass(emitted: str, text: str, reason: Reason) -> Admission:
    """Passes whole, and nothing may refer to it; its printed lines count all the same."""
    return Admission(emitted, reasons=frozenset([reason]), printed=len(cut_text(text)[0]))


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def _keep_whole(
    observation: Observation, pieces: list[str], memory: ConversationMemory, section: Section, prices: Prices
) -> Admission:
    """Passes whole; later text may refer to it."""
    RunPlanner(memory, section, pieces, prices, 0).keep(0, len(pieces))
    reason: Reason = "excluded_tool" if observation.excluded else "stub_like_input"
    lines = len(pieces)
    return Admission(observation.text, reasons=frozenset([reason]), printed=lines, lines=lines)


def _paper(
    observation: Observation,
    memory: ConversationMemory,
    config: CompactorConfig,
    prices: Prices,
    encoder: Encoder,
    printed: int,
) -> Admission:
    assert config.threshold_cos is not None
    plan = plan_paper(observation, memory, prices, encoder, config.threshold_cos, config.max_windows, printed + 1)
    reasons = plan.reasons or frozenset[Reason]([] if plan.decisions else ["no_repeat"])
    return Admission(
        plan.text,
        plan.decisions,
        reasons,
        plan.distances,
        plan.boundary_pairs,
        plan.windows,
        observation.text.count("\n") + 1,
        plan.windows,
        plan.encoder_calls,
    )


def _shorten(
    observation: Observation,
    pieces: list[str],
    memory: ConversationMemory,
    section: Section,
    config: CompactorConfig,
    prices: Prices,
    encoder: Encoder | None,
    reach: int,
) -> Admission:
    def new_planner() -> RunPlanner:
        return RunPlanner(memory, section, pieces, prices, config.min_tokens, reach)

    if encoder is None or section.unit == "part" or config.threshold_cos is None:
        planner = new_planner()
        plan = GuardedPlan(planner.plan(0, len(pieces)))
        refused = frozenset(planner.refused)
    else:
        guarded = GuardedPlanner(memory, section, new_planner, prices, encoder, config, reach)
        plan = guarded.plan(observation.text)
        refused = plan.reasons
    return _admission(observation, pieces, section, plan, refused, prices)


def _admission(
    observation: Observation,
    pieces: list[str],
    section: Section,
    plan: GuardedPlan,
    refused: frozenset[Reason],
    prices: Prices,
) -> Admission:
    cuts = plan.cuts
    return Admission(
        render(pieces, section.unit, cuts) if cuts else observation.text,
        decide(observation, pieces, cuts, prices) if cuts else (),
        _reasons(cuts, refused),
        plan.distances,
        plan.boundary_pairs,
        len(pieces) + sum(1 + len(cut.kept) - (cut.stop - cut.start) for cut in cuts),
        len(pieces),
        plan.windows,
        plan.encoder_calls,
    )


def _reasons(cuts: list[Cut], refused: frozenset[Reason]) -> frozenset[Reason]:
    """Why an observation was not shortened (the strongest reason alone); caps are named in any case."""
    capped = refused & {"cap_windows"}
    if cuts:
        return capped
    for reason in ("not_shorter", "below_min_tokens", "too_far"):
        if reason in refused:
            return capped | frozenset[Reason]([reason])
    return capped | frozenset[Reason](["no_repeat"])
