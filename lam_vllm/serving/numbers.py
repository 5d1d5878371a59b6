"""Numbers out of the text of a setting."""

from __future__ import annotations

import math

from lam_vllm.errors import OptionError


def number_setting(text: str, name: str, *, default: float, least: float, most: float = math.inf) -> float:
    """The number in `text`, `default` where it is empty.

    Raises:
        OptionError: it is no finite number from `least` to `most`; the error names `name`.
    """
    try:
        value = float(text or default)
    except ValueError:
        value = math.nan
    if not (least <= value <= most and math.isfinite(value)):
        to = f"from {least:g} to {most:g}" if math.isfinite(most) else f"of at least {least:g}"
        raise OptionError(name, text, f"a number {to}")
    return value


def integer_setting(text: str, name: str, *, default: int, least: int) -> int:
    """The integer in `text`, `default` where it is empty.

    Raises:
        OptionError: it is no integer of at least `least`; the error names `name`.
    """
    digits = text or str(default)
    if not (digits.isdecimal() and digits.isascii() and len(digits) <= _MOST_DIGITS and int(digits) >= least):
        raise OptionError(name, text, f"an integer of at least {least}")
    return int(digits)


_MOST_DIGITS = 18
"""More would not fit into 64 bits."""
