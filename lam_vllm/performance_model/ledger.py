"""What removal is worth once the turns that repair lost evidence are paid for (the paper's tables 15 and 18)."""

from __future__ import annotations

from dataclasses import dataclass

from lam_vllm.errors import OptionError


@dataclass(frozen=True, slots=True)
class Workload:
    """The runs that a ledger is about.

    `turn_tokens` is by how much a turn grows the context (the paper's Delta: what the tool printed and what the model
    wrote), `observation_tokens` all tool output of the runs together (T_obs).

    Raises:
        OptionError: one of them is not above 0.
    """

    turn_tokens: float
    observation_tokens: float

    def __post_init__(self) -> None:
        for name in ("turn_tokens", "observation_tokens"):
            if not getattr(self, name) > 0:
                raise OptionError(name, getattr(self, name), "a number above 0")

    @property
    def turn_share(self) -> float:
        """One turn as a share of all tool output."""
        return self.turn_tokens / self.observation_tokens


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a method did to the runs: the share of tool output removed (net, below 1), and the gold lines lost.

    Raises:
        OptionError: `removal` is 1 or more; `lost_lines` is negative.
    """

    removal: float
    lost_lines: int

    def __post_init__(self) -> None:
        if not self.removal < 1:
            raise OptionError("removal", self.removal, "a number below 1")
        if self.lost_lines < 0:
            raise OptionError("lost_lines", self.lost_lines, "an integer of at least 0")


def context_gain(removal: float) -> float:
    """How many times as much tool output fits into the same context: 1 / (1 - removal) (table 15).

    Raises:
        OptionError: `removal` is 1 or more.
    """
    if not removal < 1:
        raise OptionError("removal", removal, "a number below 1")
    return 1 / (1 - removal)


def eta(outcome: Outcome, kappa: float, workload: Workload) -> float:
    """Removal less `kappa` repair turns for every lost line, as a share of tool output (table 18); may be negative.

    Raises:
        OptionError: `kappa` is negative.
    """
    if not kappa >= 0:
        raise OptionError("kappa", kappa, "a number of at least 0")
    return outcome.removal - kappa * outcome.lost_lines * workload.turn_share


def break_even(ours: Outcome, other: Outcome, workload: Workload) -> float | None:
    """The kappa at which both are worth the same (table 18); None where one is ahead at every kappa.

    Below it the one that removes more is ahead, above it the one that loses fewer lines.
    """
    more_lost = other.lost_lines - ours.lost_lines
    if more_lost == 0:
        return None
    kappa = (other.removal - ours.removal) / (more_lost * workload.turn_share)
    return kappa if kappa >= 0 else None
