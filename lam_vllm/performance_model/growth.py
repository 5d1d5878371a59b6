"""Two readings of what removal does to a growing context: of the whole again each turn, or of each arrival once."""

from __future__ import annotations

from lam_vllm.errors import OptionError


def snapshot_next(context_tokens: float, turn_tokens: float, removal: float) -> float:
    """The context a turn later when the same share of all of it goes each turn (table 27's snapshot).

    Raises:
        OptionError: `removal` is not between 0 and 1.
    """
    return context_tokens * (1 - _share(removal)) + turn_tokens


def snapshot_steady_tokens(turn_tokens: float, removal: float) -> float:
    """The context that `snapshot_next` leaves as it is: turn_tokens / removal.

    Raises:
        OptionError: `removal` is not above 0 and at most 1.
    """
    if not 0 < removal <= 1:
        raise OptionError("removal", removal, "a share above 0 and at most 1: nothing else has a steady state")
    return turn_tokens / removal


def arrival_next(context_tokens: float, turn_tokens: float, removal: float) -> float:
    """The context a turn later when a share of what arrives goes: it grows for ever, until something is evicted.

    Raises:
        OptionError: `removal` is not between 0 and 1.
    """
    return context_tokens + turn_tokens * (1 - _share(removal))


def _share(removal: float) -> float:
    if not 0 <= removal <= 1:
        raise OptionError("removal", removal, "a share from 0 to 1")
    return removal
