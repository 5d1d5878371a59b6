"""fp32 values to integers and back, no further than eps away. Every step is one IEEE operation, so that the host build
and CUDA give the same bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lam_vllm.codec.error import CodecError

MOST_QUANTUM = 2**22 - 1
"""Below 2^23, so that a quantum is exact in fp32 and its zigzag code fits into 24 bits."""
LEAST_EPS, MOST_EPS = 1e-30, 1e30
"""Between them the step and its inverse are normal fp32 numbers, and no product of quantum and step overflows."""

_STEP_SHRINK = 1 - 2.0**-16
"""A step of exactly 2 eps would put values between two quanta a rounding error beyond eps: a miss in 10^6."""
_CHECK_SHRINK = 1 - 2.0**-22
"""Four times the relative error of an fp32 difference: what passes in fp32 holds in float64."""
_DEFAULT_SHARE = 0.01

Values = NDArray[np.float32]
Quanta = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Quantised:
    """`quanta` and, of the same shape, `kept`: whether the value lies within eps of what its quantum stands for."""

    quanta: Quanta
    kept: NDArray[np.bool_]

    def escaped(self) -> NDArray[np.bool_]:
        """(B,) of the (B, 32) values: which blocks hold a value that is not kept."""
        if self.kept.all():  # nearly always, and much faster than by blocks
            return np.zeros(len(self.kept), np.bool_)
        return np.logical_not(self.kept.all(axis=1))


def default_eps(max_abs: float) -> float:
    """The bound of an index: 1% of the largest |x| that an encoder was seen to give.

    Raises:
        CodecError: the bound would not be allowed.
    """
    return checked_eps(_DEFAULT_SHARE * max_abs)


def checked_eps(eps: float) -> float:
    """The bound as a Python float.

    Raises:
        CodecError: it is not a number from `LEAST_EPS` to `MOST_EPS`.
    """
    if not isinstance(eps, int | float | np.floating) or not LEAST_EPS <= eps <= MOST_EPS:  # nor may it be NaN
        raise CodecError("eps", eps, f"a number from {LEAST_EPS} to {MOST_EPS}")
    return float(eps)


def step_of(eps: float) -> np.float32:
    """The distance of two quanta, in fp32."""
    return np.float32(2 * eps * _STEP_SHRINK)


def inverse_of(eps: float) -> np.float32:
    """What a value is multiplied by, in fp32, to be rounded to its quantum."""
    return np.float32(np.float32(1) / step_of(eps))


def tolerance_of(eps: float) -> np.float32:
    """The largest fp32 number that is not above eps (1 - 2^-22): the bound of the check, which is done in fp32."""
    exact = eps * _CHECK_SHRINK
    nearest = np.float32(exact)
    return nearest if float(nearest) <= exact else np.nextafter(nearest, np.float32(0))


def quantise(values: Values, eps: float) -> Quantised:
    """The quantum of each value, and whether it keeps the bound: NaN, infinities and far too large values never do."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        whole = values * inverse_of(eps)
        np.rint(whole, out=whole)
        kept = np.abs(whole) <= MOST_QUANTUM
        if not kept.all():  # a cast of what is no int32 is undefined
            whole[~kept] = 0
        error = whole * step_of(eps)
        np.abs(np.subtract(values, error, out=error), out=error)
        kept &= error <= tolerance_of(eps)
    return Quantised(whole.astype(np.int32), kept)


def reconstruct(quanta: Quanta, eps: float) -> Values:
    """The value of each quantum, float32 of the same shape."""
    values = quanta.astype(np.float32)
    values *= step_of(eps)
    return values
