"""What becomes of one text of an observation, by the rule of the profile."""

from __future__ import annotations

import sys

from lam_vllm.config import CompactorConfig
from lam_vllm.encoders.request import RequestEncoder
from lam_vllm.lines import cut_text
from lam_vllm.memory import ConversationMemory
from lam_vllm.paper import plan_paper
from lam_vllm.prices import Prices
from lam_vllm.runs import RunPlanner
from lam_vllm.shorten import Admission, Shortener, Surroundings
from lam_vllm.stubs import escape
from lam_vllm.types import Observation, Reason

DECISION_BYTES = 500
"""A decision with its stub, roughly."""


def admit_text(
    observation: Observation,
    memory: ConversationMemory,
    config: CompactorConfig,
    prices: Prices,
    encoder: RequestEncoder | None,
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
    memory.text_bytes += sys.getsizeof(text)
    start = len(memory.lines)
    if observation.excluded or whole is not None:
        admission = _keep_whole(observation, memory, prices, place.printed)
    elif config.profile == "paper" and encoder is not None:
        memory.open_section(observation.result, place.printed + 1, "line")
        admission = _paper(observation, memory, config, prices, encoder, place.printed)
    else:
        admission = Shortener(observation, memory, config, prices, encoder, place).shorten()
    if place.sole and not admission.decisions and config.profile != "paper":
        memory.whole[start] = admission.printed
    if admission.decisions:
        memory.text_bytes += sys.getsizeof(admission.text) + DECISION_BYTES * len(admission.decisions)
    memory.lines.hole()
    return admission


def is_planned(text: str, config: CompactorConfig) -> bool:
    """Whether a text is one that may be shortened at all, by what `admit_text` looks at first."""
    return _bytes(text) <= config.max_observation_bytes and bool(text.strip()) and escape(text) is None


def _pass(emitted: str, text: str, reason: Reason) -> Admission:
    """Passes whole, and nothing may refer to it; its printed lines count all the same."""
    return Admission(emitted, reasons=frozenset([reason]), printed=len(cut_text(text)[0]))


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def _keep_whole(observation: Observation, memory: ConversationMemory, prices: Prices, printed: int) -> Admission:
    """Passes whole; later text may refer to it."""
    pieces, unit = cut_text(observation.text)
    section = memory.open_section(observation.result, printed + 1, unit)
    RunPlanner(memory, section, pieces, prices, 0).keep(0, len(pieces))
    reason: Reason = "excluded_tool" if observation.excluded else "stub_like_input"
    lines = len(pieces)
    return Admission(observation.text, reasons=frozenset([reason]), printed=lines, lines=lines)


def _paper(
    observation: Observation,
    memory: ConversationMemory,
    config: CompactorConfig,
    prices: Prices,
    encoder: RequestEncoder,
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
        plan.seen,
    )
