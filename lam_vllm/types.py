"""The nouns that cross modules: small, frozen, and free of behaviour beyond derived figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Message: TypeAlias = Mapping[str, Any]
Embedding: TypeAlias = NDArray[np.float32]  # (D,) or (N, D), rows of unit length

Layer = Literal["l0", "l1", "alias"]
Reason = Literal[
    "off",
    "canary",
    "no_observation",
    "no_repeat",
    "below_min_tokens",
    "not_shorter",
    "not_a_list",
    "truncation",
    "stub_like_input",
    "unauthenticated",
    "token_reuse",
    "response_started",
    "excluded_tool",
    "too_far",
    "cap_observation_bytes",
    "cap_windows",
    "worker_lost",
    "encoder_error",
    "time_limit",
    "internal_error",
]
Outcome = Literal["changed", "unchanged", "observed", "passed_through", "failed_open", "rejected"]


class Observation(NamedTuple):
    """One text of one tool result, as it arrived.

    `message` is the message's index; `part` the index in a parts list, or None where the content is a string;
    `result` the ordinal of the tool result counted from 1 (all parts of a message share it).
    """

    message: int
    part: int | None
    result: int
    text: str
    excluded: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """A span of an observation's text, in characters; windows of one text tile it. `tokens` are the encoder's."""

    start: int
    end: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A proposal of a search: the retained window with this index may be near. Decides nothing."""

    index: int


@dataclass(frozen=True, slots=True)
class Match:
    """A proof: the retained window `representative` lies at this l2 `distance`, within the bound."""

    representative: int
    distance: float


class Decision(NamedTuple):
    """One replacement: characters `start:end` of an observation became `stub`.

    `target_result` and `target_lines` (first, last; counted from 1 in the result as printed) name the text that
    stands earlier; `target_lines` is None when the whole result is meant. `unit` says what the range counts, `shift` is
    the constant by which leading line numbers differ. Token counts are the served model's. In layer `alias` the span is
    empty and stands at the top of the text: `stub` defines a short name there, and `removed_tokens` is what it saves in
    the lines that stay.
    """

    message: int
    part: int | None
    result: int
    layer: Layer
    start: int
    end: int
    stub: str
    target_result: int
    target_lines: tuple[int, int] | None
    unit: Literal["line", "part", "window"] = "line"
    shift: int = 0
    removed_tokens: int = 0
    stub_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """How much was new in one call: what the memo did not already know.

    `new_windows` were looked at, or made ready because they might be. Of those that needed an embedding `encoder_calls`
    were encoded and `remembered` were not; `canonical_calls` windows, the history's among them but each once in a
    conversation, were encoded once more because a decision was close.
    """

    known_messages: int = 0
    new_messages: int = 0
    new_lines: int = 0
    new_windows: int = 0
    encoder_calls: int = 0
    canonical_calls: int = 0
    remembered: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """What one compaction did. Everything but `seconds`, `work`, `distances`, `delta_hat` and the `new_*` figures is a
    function of the messages.

    `distances` holds, for each decision of layer `l1` in order, an upper bound on the l2 distance of the substitution
    by canonical embeddings (0 for byte-equal text), at most `delta`; `delta_hat` is the largest of them. Token figures
    count each removal once per request. `new_*` count what follows the last message of the assistant and the memo did
    not know: summed over the requests of a conversation they count each removal once, whichever process a request
    reaches, and none of a history that comes whole.
    """

    profile: str
    algorithm: int
    config_digest: str
    prefix_digest: str
    observations: int
    removed_tokens: Mapping[str, int]
    stub_tokens: int
    delta: float
    delta_hat: float
    boundary_pairs: int
    reasons: Mapping[str, int]
    distances: tuple[float, ...] = ()
    new_removed_tokens: Mapping[str, int] = field(default_factory=dict)
    new_stub_tokens: int = 0
    new_distances: tuple[float, ...] = ()
    new_boundary_pairs: int = 0
    work: Work = Work()
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def saved_tokens(self) -> int:
        """Tokens removed less the stubs that stand for them."""
        return sum(self.removed_tokens.values()) - self.stub_tokens


@dataclass(frozen=True, slots=True)
class Compaction:
    """The messages to render, every replacement made in them, and the report.

    `messages` is the list that was given when nothing was removed.
    """

    messages: list[Any]
    decisions: tuple[Decision, ...]
    report: Report

    @property
    def changed(self) -> bool:
        """Whether at least one text was replaced."""
        return bool(self.decisions)
