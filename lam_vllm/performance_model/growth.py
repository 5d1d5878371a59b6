"""Two readings of what removal does to a growing context: of the whole again each turn, or of each arrival once."""

from __future__ import annotations

from lam_vllm.errors import OptionError
from lam_vllm.performance_model.amount import amount


def snapshot_next(context_tokens: float, turn_tokens: float, removal: float) -> float:
    """The context a turn later when the same share of all of it goes each turn (table 27's snapshot).

    Raises:
        OptionError: a number of tokens is no amount, or `removal` is not between 0 and 1.
    """
    before, new = amount("context_tokens", context_tokens), amount("turn_tokens", turn_tokens)
    return before * (1 - _share(removal)) + new


def snapshot_steady_tokens(turn_tokens: float, removal: float) -> float:
    """The context that `snapshot_next` leaves as it is: turn_tokens / removal.

    Raises:
        OptionError: `turn_tokens` is no amount, or `removal` is not above 0 and at most 1.
    """
    amount("turn_tokens", turn_tokens)
    if not 0 < removal <= 1:
        raise OptionError("removal", removal, "a share above 0 and at most 1: nothing else has a steady state")
    return turn_tokens / removal


def arrival_next(context_tokens: float, turn_tokens: float, removal: float) -> float:
    """The context a turn later when a share of what arrives goes: it grows for ever, until something is evicted.

    Raises:
        OptionError: a number of tokens is no amount, or `removal` is not between 0 and 1.
    """
    before, new = amount("context_tokens", context_tokens), amount("turn_tokens", turn_tokens)
    return before + new * (1 - _share(removal))


def _share(removal: float) -> float:
    if not 0 <= removal <= 1:
        raise OptionError("removal", removal, "a share from 0 to 1")
    return removal
