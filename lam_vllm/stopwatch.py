"""Seconds spent in named stages of one call."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

_In = TypeVar("_In")
_Out = TypeVar("_Out")


class Stopwatch:
    """Adds up the wall-clock seconds of functions that it wraps."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def restart(self) -> None:
        """Begin again from nothing."""
        self.seconds = {}

    def timed(self, stage: str, function: Callable[[_In], _Out]) -> Callable[[_In], _Out]:
        """The same function; its time counts under `stage`."""

        def call(value: _In) -> _Out:
            started = perf_counter()
            try:
                return function(value)
            finally:
                self.seconds[stage] = self.seconds.get(stage, 0.0) + perf_counter() - started

        return call
