"""What removal is worth once its price is paid (the paper's tables 15 and 18): repairs, and prefixes that broke."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lam_vllm.errors import OptionError
from lam_vllm.performance_model.amount import amount


@dataclass(frozen=True, slots=True)
class Workload:
    """The runs that a ledger is about.

    `turn_tokens` is by how much a turn grows the context (the paper's Delta: what the tool printed and what the model
    wrote), `observation_tokens` all tool output of the runs together (T_obs).

    Raises:
        OptionError: one of them is not a finite number above 0.
    """

    turn_tokens: float
    observation_tokens: float

    def __post_init__(self) -> None:
        for name in ("turn_tokens", "observation_tokens"):
            if not 0 < getattr(self, name) < math.inf:
                raise OptionError(name, getattr(self, name), "a finite number above 0")

    @property
    def turn_share(self) -> float:
        """One turn as a share of all tool output."""
        return self.turn_tokens / self.observation_tokens


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a method did to the runs: the share of tool output removed (net, below 1), and the gold lines lost.

    `reprefilled_tokens` of cached prefixes were prefilled again because of it: none by a rule that keeps the prefix.
    The paper's ledger has no such entry.

    Raises:
        OptionError: `removal` is no finite number below 1; `lost_lines` is negative; `reprefilled_tokens` is no amount.
    """

    removal: float
    lost_lines: int
    reprefilled_tokens: float = 0.0

    def __post_init__(self) -> None:
        if not -math.inf < self.removal < 1:
            raise OptionError("removal", self.removal, "a finite number below 1")
        if self.lost_lines < 0:
            raise OptionError("lost_lines", self.lost_lines, "an integer of at least 0")
        amount("reprefilled_tokens", self.reprefilled_tokens)


@dataclass(frozen=True, slots=True)
class Worth:
    """Shares of all tool output: what `removal` saves, less what `repair` of lost lines and `reprefill` cost.

    All are tokens of prefill: one that is prefilled again costs what one that is removed saves when it arrives. What a
    removed token saves in later turns is not counted.
    """

    removal: float
    repair: float
    reprefill: float

    @property
    def total(self) -> float:
        """What is left; may be negative."""
        return self.removal - self.repair - self.reprefill


def context_gain(removal: float) -> float:
    """How many times as much tool output fits into the same context: 1 / (1 - removal) (table 15).

    Raises:
        OptionError: `removal` is 1 or more.
    """
    if not removal < 1:
        raise OptionError("removal", removal, "a number below 1")
    return 1 / (1 - removal)


def worth(outcome: Outcome, kappa: float, workload: Workload) -> Worth:
    """The entries of the ledger, with `kappa` repair turns for every lost line.

    Raises:
        OptionError: `kappa` is no amount.
    """
    repair = amount("kappa", kappa) * outcome.lost_lines * workload.turn_share
    return Worth(outcome.removal, repair, _reprefill(outcome, workload))


def eta(outcome: Outcome, kappa: float, workload: Workload) -> float:
    """What removal is worth, as a share of tool output (table 18); may be negative.

    Raises:
        OptionError: `kappa` is no amount.
    """
    return worth(outcome, kappa, workload).total


def break_even(ours: Outcome, other: Outcome, workload: Workload) -> float | None:
    """The kappa at which both are worth the same (table 18); None where one is ahead at every kappa.

    Below it the one that removes more is ahead, above it the one that loses fewer lines.
    """
    more_lost = other.lost_lines - ours.lost_lines
    if more_lost == 0:
        return None
    ahead = other.removal - _reprefill(other, workload) - (ours.removal - _reprefill(ours, workload))
    kappa = ahead / (more_lost * workload.turn_share)
    return kappa if kappa >= 0 else None


def _reprefill(outcome: Outcome, workload: Workload) -> float:
    return outcome.reprefilled_tokens / workload.observation_tokens
