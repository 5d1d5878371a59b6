"""Runs cut into the encoder's windows, their embeddings, and what is left of a run when windows give way to stubs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from time import process_time
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from lam_vllm.encoders.base import Encoder
from lam_vllm.evaluation.baselines.texts import observations_of, with_observations
from lam_vllm.evaluation.corpus import Run
from lam_vllm.stubs import Stub, format_stub
from lam_vllm.types import Embedding, Observation
from lam_vllm.windows import fixed_windows

_Value = TypeVar("_Value")


class PlacedWindow(NamedTuple):
    """Window `ordinal` (from 1) of tool result `result`: characters `start:end` of the run's text `observation`."""

    observation: int
    result: int
    ordinal: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class WindowedRun:
    """A run, its observations, and the fixed windows that tile them, in order."""

    run: Run
    observations: tuple[Observation, ...]
    windows: tuple[PlacedWindow, ...]

    def texts(self) -> list[str]:
        """The text of every window."""
        return [self.observations[window.observation].text[window.start : window.end] for window in self.windows]

    def without(self, dropped: Mapping[int, PlacedWindow]) -> list[Any]:
        """The run's messages with a stub line for each window in `dropped`, which names the window it resembles."""
        texts = [observation.text for observation in self.observations]
        for observation, places in groupby(sorted(dropped), key=lambda place: self.windows[place].observation):
            gone = [(self.windows[place], dropped[place]) for place in places]
            texts[observation] = _folded(texts[observation], gone)
        return with_observations(self.run, self.observations, texts)


class WindowEmbeddings:
    """Windows and embeddings of runs, made once per run and kept, for all methods and settings that ask for them.

    `clock` tells CPU seconds; `cpu_seconds` is the same with what was kept counted again each time it is used, so that
    the difference of two readings says what a method would have taken alone. Costs 4 D bytes a window.
    """

    def __init__(self, encoder: Encoder, clock: Callable[[], float] = process_time) -> None:
        self._encoder = encoder
        self._clock = clock
        self._charged_seconds = 0.0
        self._windowed = _PerRun(self._cut, clock)
        self._rows = _PerRun(self._encode, clock)

    def windowed(self, run: Run) -> WindowedRun:
        """The run cut into fixed windows of the encoder's token budget, as in the paper; none crosses observations."""
        return self._windowed.of(run)

    def rows(self, run: Run) -> Embedding:
        """(N, D) float32, the canonical embedding of each of the run's windows; equal texts are encoded once."""
        self._windowed.peek(run)  # first, so that embeddings are charged without the cutting
        return self._rows.of(run)

    def cpu_seconds(self) -> float:
        """CPU seconds as they would be with nothing kept: for the difference of two calls."""
        kept = self._windowed.charged_seconds + self._rows.charged_seconds
        return self._clock() + kept + self._charged_seconds

    def charge(self, seconds: float) -> None:
        """Count work that a caller did before and kept; negative: work that others will be charged for."""
        self._charged_seconds += seconds

    def _cut(self, run: Run) -> WindowedRun:
        observations = tuple(observations_of(run))
        windows: list[PlacedWindow] = []
        for place, observation in enumerate(observations):
            same_result = bool(windows) and windows[-1].result == observation.result
            first = windows[-1].ordinal + 1 if same_result else 1
            cut = fixed_windows(observation.text, self._encoder.token_offsets, self._encoder.window_tokens)
            windows += [
                PlacedWindow(place, observation.result, first + number, window.start, window.end)
                for number, window in enumerate(cut)
            ]
        return WindowedRun(run, observations, tuple(windows))

    def _encode(self, run: Run) -> Embedding:
        texts = self._windowed.peek(run).texts()
        vectors = {text: self._encoder.encode(text) for text in dict.fromkeys(texts)}
        rows = np.empty((len(texts), self._encoder.dimension), np.float32)
        for place, text in enumerate(texts):
            rows[place] = vectors[text]
        rows.flags.writeable = False
        return rows


class _PerRun(Generic[_Value]):
    """What `make` says of each run, made once. Runs of one id are told apart by what they are.

    `charged_seconds` is what to add to a clock so that making costs nothing and each use the time of making.
    """

    def __init__(self, make: Callable[[Run], _Value], clock: Callable[[], float]) -> None:
        self.charged_seconds = 0.0
        self._make = make
        self._clock = clock
        self._made: dict[str, tuple[Run, _Value, float]] = {}

    def peek(self, run: Run) -> _Value:
        """The value, free of charge."""
        return self._known(run)[1]

    def of(self, run: Run) -> _Value:
        """The value."""
        _, value, seconds = self._known(run)
        self.charged_seconds += seconds
        return value

    def _known(self, run: Run) -> tuple[Run, _Value, float]:
        made = self._made.get(run.id)
        if made is None or made[0] != run:
            began = self._clock()
            value = self._make(run)
            seconds = self._clock() - began
            self.charged_seconds -= seconds
            made = self._made[run.id] = (run, value, seconds)
        return made


def _folded(text: str, gone: list[tuple[PlacedWindow, PlacedWindow]]) -> str:
    """The text with a line for each window that is gone; the newline before a stub is its own."""
    blocks = []
    last = 0
    for window, like in gone:
        if window.start > last:
            blocks.append(text[last : window.start].removesuffix("\n"))
        blocks.append(format_stub(Stub("window", like.result, like.ordinal, like.ordinal)))
        last = window.end
    if last < len(text):
        blocks.append(text[last:])
    return "\n".join(blocks)
