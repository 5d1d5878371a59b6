"""Seconds spent in named stages of one call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

_In = TypeVar("_In")
_Out = TypeVar("_Out")


class Stopwatch:
    """Adds up the wall-clock seconds of functions that it wraps."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def timed(self, stage: str, function: Callable[[_In], _Out]) -> Callable[[_In], _Out]:
        """The same function; its time counts under `stage`."""

        def call(value: _In) -> _Out:
            started = perf_counter()
            result = function(value)
            self.seconds[stage] += perf_counter() - started
            return result

        return call
