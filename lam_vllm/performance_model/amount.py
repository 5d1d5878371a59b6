"""Numbers that the formulas take: none is negative, none is without end."""

from __future__ import annotations

import math

from lam_vllm.errors import OptionError


def is_number(value: object) -> bool:
    """Whether it is one: True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def amount(name: str, value: float) -> float:
    """`value` itself.

    Raises:
        OptionError: it is not a finite number of at least 0; `name` is what it is of.
    """
    if not 0 <= value < math.inf:
        raise OptionError(name, value, "a finite number of at least 0")
    return value
