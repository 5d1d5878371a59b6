"""What timed requests say of a running engine: its coefficients, by least squares, and the rates they come down to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from lam_vllm.errors import OptionError
from lam_vllm.performance_model.amount import amount
from lam_vllm.performance_model.model import Model
from lam_vllm.performance_model.served import Served, decode_step_seconds, prefill_pairs, ttft_seconds


@dataclass(frozen=True, slots=True)
class Timing:
    """One request by its client's clock, on an engine that had nothing else to do.

    `step_seconds` is the mean time from one token of the answer to the next, the answer being short.

    Raises:
        OptionError: a number of tokens is no amount.
    """

    uncached_tokens: float
    cached_tokens: float
    ttft_seconds: float
    step_seconds: float

    def __post_init__(self) -> None:
        for name in ("uncached_tokens", "cached_tokens"):
            amount(name, getattr(self, name))

    @property
    def context_tokens(self) -> float:
        """The prompt."""
        return self.uncached_tokens + self.cached_tokens


def middle_timings(rounds: Sequence[Sequence[Timing]]) -> list[Timing]:
    """Of each request, timed once in every round, the timing with the median TTFT; the slower of an even number's two.

    Raises:
        ValueError: the rounds differ in length.
    """
    by_request = zip(*rounds, strict=True)
    return [sorted(each, key=lambda timing: timing.ttft_seconds)[len(each) // 2] for each in by_request]


def fit_served(timings: Sequence[Timing], source: str, model: Model | None = None) -> Served:
    """The coefficients with the least sum of squared relative errors, none of them below 0.

    They are of `model`, where it is known, and `source` says where from.
    Errors are relative so that short prompts, which are most of an agent's, count as much as long ones.

    Raises:
        OptionError: there are fewer than 4 timings, a time is not above 0, or too few numbers of tokens differ.
    """
    fixed, token, pair = fit(
        [(1.0, each.uncached_tokens, prefill_pairs(each.uncached_tokens, each.cached_tokens)) for each in timings],
        [each.ttft_seconds for each in timings],
        "uncached and cached tokens",
    )
    step, context = fit(
        [(1.0, each.context_tokens) for each in timings], [each.step_seconds for each in timings], "context tokens"
    )
    return Served(fixed, token, pair, step, context, source, model)


def fit(rows: Sequence[Sequence[float]], seconds: Sequence[float], of: str) -> list[float]:
    """x of at least 0 with the least sum of squares of (rows x - seconds) / seconds; `of` says what a row is made of.

    The best x with bounds is the best one without them on the columns where it is above 0, so that trying every set of
    columns finds it; there are three at most.

    Raises:
        OptionError: there are no more rows than columns, a time is not above 0, or the columns depend on one another.
    """
    columns = len(rows[0]) if rows else 1
    if len(rows) <= columns:
        raise OptionError("timings", len(rows), f"more than the {columns} coefficients that are fitted")
    if not all(0 < each < np.inf for each in seconds):
        raise OptionError("seconds", min(seconds), "finite numbers above 0")
    plain = np.asarray(rows, dtype=np.float64)
    largest = np.abs(plain).max(axis=0)
    scale = np.where(largest > 0, largest, 1.0)
    if np.linalg.matrix_rank(plain / scale, tol=_TOLERANCE) < columns:
        raise OptionError("timings", len(rows), f"requests that differ in their {of}")
    weighted = plain / scale / np.asarray(seconds, dtype=np.float64)[:, None]
    return [float(each) for each in _least_squares(weighted) / scale]


def relative_errors(served: Served, timings: Sequence[Timing]) -> tuple[list[float], list[float]]:
    """|predicted - measured| / measured of every TTFT, and of every decode step."""
    ttft = [(ttft_seconds(served, each.uncached_tokens, each.cached_tokens), each.ttft_seconds) for each in timings]
    steps = [(decode_step_seconds(served, each.context_tokens), each.step_seconds) for each in timings]
    first, second = ([abs(made - seen) / seen for made, seen in pairs] for pairs in (ttft, steps))
    return first, second


def effective_prefill_rate(served: Served, model: Model, timings: Sequence[Timing]) -> float:
    """FLOP per second at which the formulas give the measured prefill, less its fixed part, of the mean timing.

    Raises:
        OptionError: by the fit, prefill takes no time beyond its fixed part.
    """
    uncached, cached = fmean(each.uncached_tokens for each in timings), fmean(each.cached_tokens for each in timings)
    seconds = ttft_seconds(served, uncached, cached) - served.fixed_seconds
    if not seconds > 0:
        allowed = "more than 0: tokens too few to be told from the fixed part"
        raise OptionError("seconds of a prefill beyond its fixed part", seconds, allowed)
    attention = 4 * model.layers * model.attention_width * prefill_pairs(uncached, cached)
    return (2 * model.active_parameters * uncached + attention) / seconds


def effective_bandwidth(served: Served, model: Model, timings: Sequence[Timing]) -> float:
    """Bytes per second at which the formulas give the measured decode step of the mean timing."""
    context = fmean(each.context_tokens for each in timings)
    return (model.read_bytes(1) + model.kv_bytes_per_token * context) / decode_step_seconds(served, context)


_TOLERANCE = 1e-3
"""Singular values of columns scaled to 1 below which their coefficients are noise."""


def _least_squares(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """x >= 0 with the least |matrix x - 1|."""
    ones, columns = np.ones(len(matrix)), matrix.shape[1]
    best, least = np.zeros(columns), np.inf
    for size in range(1, columns + 1):
        for chosen in combinations(range(columns), size):
            part = matrix[:, chosen]
            found = np.linalg.lstsq(part, ones, rcond=None)[0]
            left = float(np.square(part @ found - ones).sum())
            if (found >= 0).all() and left < least:
                best, least = np.zeros(columns), left
                best[list(chosen)] = found
    return best
