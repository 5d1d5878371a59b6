"""What an agent's turns add to its context, and what of it a deletion set takes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lam_vllm.errors import OptionError
from lam_vllm.performance_model.amount import amount

MOST_TOKENS, MOST_TURNS = 10**9, 10_000
"""Of one number of a turn, and of a steady run: far beyond what any model's window holds, and work stays bounded."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of an agent: what arrives is prefilled, and an answer decoded.

    `other_tokens` of what arrives are no tool output: the task, what the user says. `removed_tokens` of the tool output
    are what the deletion set takes out, stubs deducted. Where that is done only after the whole was prefilled,
    `stale_tokens` behind the first changed one stay and are prefilled again: at most what the context then holds. All
    are tokens of the served model; means over turns need not be whole.

    Raises:
        OptionError: a number is negative, not finite or above `MOST_TOKENS`; of what arrives more is other, or of the
            tool output more removed, than there is; something is stale although nothing is removed.
    """

    arriving_tokens: float
    decoded_tokens: float
    removed_tokens: float = 0.0
    stale_tokens: float = 0.0
    other_tokens: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if amount(name, getattr(self, name)) > MOST_TOKENS:
                raise OptionError(name, getattr(self, name), f"at most {MOST_TOKENS:,}")
        if self.other_tokens > self.arriving_tokens:
            raise OptionError("other_tokens", self.other_tokens, f"at most the {self.arriving_tokens:g} that arrive")
        if self.removed_tokens > self.observed_tokens:
            allowed = f"at most the {self.observed_tokens:g} of tool output"
            raise OptionError("removed_tokens", self.removed_tokens, allowed)
        if self.stale_tokens and not self.removed_tokens:
            raise OptionError("stale_tokens", self.stale_tokens, "0, since nothing is removed")

    @property
    def observed_tokens(self) -> float:
        """Tool output, all of it."""
        return self.arriving_tokens - self.other_tokens

    @property
    def kept_tokens(self) -> float:
        """What arrives and stays."""
        return self.arriving_tokens - self.removed_tokens

    @property
    def growth_tokens(self) -> float:
        """By how much the turn leaves the context longer."""
        return self.kept_tokens + self.decoded_tokens

    @property
    def whole(self) -> Turn:
        """The same turn with nothing removed."""
        return replace(self, removed_tokens=0.0, stale_tokens=0.0)


def steady_run(
    turns: int, turn_tokens: float, decoded_tokens: float, removed_tokens: float = 0.0, start_tokens: float = 0.0
) -> tuple[Turn, ...]:
    """`turns` equal turns: each adds `turn_tokens` (Delta), of them `decoded_tokens` (G_a), and loses `removed_tokens`.

    The first removed token is taken to be the first that arrives, so that all that a turn keeps is stale. The first
    turn also brings `start_tokens` that are no tool output.

    Raises:
        OptionError: `turns` is not an integer from 1 to `MOST_TURNS`; a turn adds nothing; more is decoded than a turn
            adds; or as `Turn`.
    """
    if not isinstance(turns, int) or turns < 1:
        raise OptionError("turns", turns, "an integer of at least 1")
    if turns > MOST_TURNS:
        raise OptionError("turns", turns, f"at most {MOST_TURNS:,}; longer turns fill a context in fewer")
    if not turn_tokens > 0:
        raise OptionError("turn_tokens", turn_tokens, "a number above 0")
    if not decoded_tokens <= turn_tokens:
        raise OptionError("decoded_tokens", decoded_tokens, f"at most the {turn_tokens:g} that a turn adds")
    stale = turn_tokens - removed_tokens if 0 < removed_tokens <= turn_tokens else 0.0
    turn = Turn(turn_tokens - decoded_tokens, decoded_tokens, removed_tokens, stale)
    first = replace(turn, arriving_tokens=turn.arriving_tokens + start_tokens, other_tokens=start_tokens)
    return (first, *[turn] * (turns - 1))


def without_removal(run: Sequence[Turn]) -> tuple[Turn, ...]:
    """The run as it is without any deletion."""
    return tuple(turn.whole for turn in run)


def removing(run: Sequence[Turn], share: float) -> tuple[Turn, ...]:
    """The same run with this share of every turn's tool output removed, and all that a turn keeps stale.

    Raises:
        OptionError: `share` is not between 0 and 1.
    """
    if not 0 <= share <= 1:
        raise OptionError("removal", share, "a share from 0 to 1")
    turns = (replace(turn.whole, removed_tokens=share * turn.observed_tokens) for turn in run)
    return tuple(replace(turn, stale_tokens=turn.growth_tokens if turn.removed_tokens else 0.0) for turn in turns)
