"""What the marks of a conversation add up to: the report of one compaction, and its decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from lam_vllm.bound import delta_of
from lam_vllm.config import CompactorConfig
from lam_vllm.memory import Mark
from lam_vllm.types import Decision, Layer, Report, Work


def account(
    config: CompactorConfig,
    config_digest: str,
    marks: Sequence[Mark],
    turn: int,
    work: Work,
    seconds: Mapping[str, float],
) -> tuple[Report, tuple[Decision, ...]]:
    """The report over all messages, one mark each, with what is new in it apart, and every decision in order.

    New is what the memo did not know of the messages from index `turn` on.
    """
    totals, new = _Totals.of(marks), _Totals.of(marks[max(turn, work.known_messages) :])
    report = Report(
        profile=str(config.profile),
        algorithm=config.algorithm,
        config_digest=config_digest,
        prefix_digest=marks[-1].digest if marks else "",
        observations=totals.observations,
        removed_tokens=totals.removed,
        stub_tokens=totals.stubs,
        delta=delta_of(config.threshold_cos) if config.threshold_cos is not None else 0.0,
        delta_hat=max(totals.distances, default=0.0),
        boundary_pairs=totals.boundary_pairs,
        reasons=totals.reasons,
        distances=totals.distances,
        new_removed_tokens=new.removed,
        new_stub_tokens=new.stubs,
        new_distances=new.distances,
        new_boundary_pairs=new.boundary_pairs,
        work=work,
        seconds=seconds,
    )
    return report, totals.decisions


@dataclass(frozen=True, slots=True)
class _Totals:
    """Sums over marks."""

    observations: int
    removed: dict[str, int]
    stubs: int
    reasons: dict[str, int]
    distances: tuple[float, ...]
    boundary_pairs: int
    decisions: tuple[Decision, ...]

    @staticmethod
    def of(marks: Sequence[Mark]) -> _Totals:
        removed: dict[str, int] = dict.fromkeys(get_args(Layer), 0)
        reasons: Counter[str] = Counter()
        emitted = [mark.emitted for mark in marks if mark.emitted.observation]
        decisions = tuple(decision for one in emitted for decision in one.decisions)
        for decision in decisions:
            removed[decision.layer] += decision.removed_tokens
        for one in emitted:
            reasons.update(one.reasons)
        return _Totals(
            len(emitted),
            removed,
            sum(decision.stub_tokens for decision in decisions),
            dict(sorted(reasons.items())),
            tuple(distance for one in emitted for distance in one.distances),
            sum(one.boundary_pairs for one in emitted),
            decisions,
        )
