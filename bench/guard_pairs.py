"""Pairs of real windows that differ in one token, matched by force, and what `guarded` leaves of the difference."""

from __future__ import annotations

import random
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

import numpy as np

from lam_vllm import Compactor, make_config
from lam_vllm.encoders import Encoder
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.evidence import distinct_lines
from lam_vllm.evaluation.inspection.view import inspect_run
from lam_vllm.evaluation.second_reads import tells_the_truth
from lam_vllm.lines import cut_text
from lam_vllm.types import Embedding, Message
from lam_vllm.windows import line_windows

LEAST_TOKENS = 64
"""A shorter window is hardly ever worth a reference."""
TOKEN = re.compile(r"\w+|[^\w\s]")
NEGATED = frozenset(
    [
        "is",
        "are",
        "was",
        "were",
        "has",
        "have",
        "had",
        "can",
        "could",
        "does",
        "do",
        "did",
        "will",
        "would",
        "must",
        "should",
        "may",
    ]
)
OPPOSITE = dict(
    pair
    for one, other in (
        ("passed", "failed"),
        ("pass", "fail"),
        ("true", "false"),
        ("ok", "error"),
        ("success", "failure"),
        ("yes", "no"),
        ("on", "off"),
        ("enabled", "disabled"),
        ("open", "closed"),
        ("none", "some"),
        ("not", "now"),
        ("without", "with"),
    )
    for pair in ((one, other), (other, one))
)
Kind = Literal["number", "hash", "status", "negation", "path", "word", "mark"]
Outcome = Literal["verbatim", "moved", "named", "lost"]
"""The changed line stands in the second text as emitted; or only its line number changed, and a stub prints by how
much; or it also stands in the first text and a true stub names it; or none of these."""


class Pair(NamedTuple):
    """A window, the same with one token replaced, and which line, counted from 0, that changed."""

    kind: Kind
    first: str
    second: str
    start: int

    @property
    def line(self) -> str:
        """The changed line of the second text."""
        return self.second.split("\n")[self.second.count("\n", 0, self.start)]


class SameVector:
    """A stand-in at the encoder seam under which every window is at distance 0 from every other."""

    name = fingerprint = "same vector"
    dimension = 2
    window_tokens = 1_000_000
    threshold_cos = 0.95

    def token_offsets(self, text: str) -> list[tuple[int, int]]:
        return [found.span() for found in TOKEN.finditer(text)]

    def encode(self, text: str) -> Embedding:
        return np.asarray([1, 0], np.float32) if text else np.asarray([0, 1], np.float32)


def sample_windows(runs: Sequence[Run], encoder: Encoder, count: int, seed: int = 0) -> list[str]:
    """Windows of the encoder's size from as many tool results, drawn by `seed`."""
    chosen = random.Random(seed)
    results = [str(message["content"]) for run in runs for message in run.messages if message["role"] == "tool"]
    chosen.shuffle(results)
    windows: dict[str, None] = {}
    for text in results:
        fitting = [
            text[window.start : window.end]
            for window in line_windows(text, encoder.token_offsets, encoder.window_tokens)
            if window.tokens >= LEAST_TOKENS
        ]
        if fitting:
            windows[chosen.choice(fitting)] = None
        if len(windows) == count:
            break
    return list(windows)


def pairs(window: str, chosen: random.Random, positions: int | None = None) -> Iterator[Pair]:
    """The window with one token replaced, for `positions` of its tokens (None: for each)."""
    tokens = [found.span() for found in TOKEN.finditer(window)]
    for start, end in tokens if positions is None else chosen.sample(tokens, min(positions, len(tokens))):
        kind, token = replaced(window, start, end, chosen)
        yield Pair(kind, window, window[:start] + token + window[end:], start)


def replaced(text: str, start: int, end: int, chosen: random.Random) -> tuple[Kind, str]:
    """What takes the place of the token at `start:end`, and what kind of difference that is."""
    token = text[start:end]
    low = token.lower()
    if token.isdecimal():
        return "number", _other(token, "0123456789", chosen)
    if low in OPPOSITE or low in NEGATED:
        new = OPPOSITE.get(low, f"{low} not")
        kind: Kind = "negation" if low in NEGATED or low in ("not", "without") else "status"
        return kind, new.upper() if token.isupper() else new.capitalize() if token[0].isupper() else new
    if len(token) >= 7 and re.fullmatch("[0-9a-f]*[0-9][0-9a-f]*", token):
        return "hash", _other(token, "0123456789abcdef", chosen)
    if not token[0].isalnum() and token[0] != "_":
        return "mark", _other(token, ".,:;!?()[]{}<>=+-*/#", chosen)
    kind = "path" if "/" in (text[start - 1 : start], text[end : end + 1]) else "word"
    return kind, _other(token, "abcdefghijklmnopqrstuvwxyz", chosen)


def outcome(pair: Pair, compactor: Compactor) -> tuple[Outcome, bool]:
    """What is left of the difference when the second text comes after the first, and whether it was shortened."""
    messages = chat(pair.first, pair.second)
    compaction = compactor.compact(messages)
    emitted = str(compaction.messages[-1]["content"])
    return _outcome(pair, messages, compaction.messages, compactor), emitted != pair.second


def guarded_by_force(count_tokens: Callable[[str], int]) -> Compactor:
    """A compactor of profile `guarded` in which every window is near every other."""
    return Compactor(make_config({"profile": "guarded"}), count_tokens, SameVector())


def chat(*results: str) -> list[Message]:
    """A chat in which a tool gave these results."""
    messages: list[Message] = [{"role": "user", "content": "Please look."}]
    for result in results:
        messages += [{"role": "assistant", "content": "I look."}, {"role": "tool", "content": result}]
    return messages


def _outcome(pair: Pair, messages: Sequence[Message], compacted: Sequence[Message], compactor: Compactor) -> Outcome:
    emitted = str(compacted[-1]["content"])
    if pair.line in emitted.split("\n") or _part_stands(pair, emitted):
        return "verbatim"
    if pair.line not in pair.first.split("\n"):
        return "lost" if distinct_lines(messages, compacted).lost else "moved"
    cuts = inspect_run(Run("pair", "made", tuple(messages)), compactor, len).cuts
    return "named" if all(tells_the_truth(cut, pair.second) for cut in cuts if cut.decision.message > 2) else "lost"


def _part_stands(pair: Pair, emitted: str) -> bool:
    """Whether the text has long lines that are cut in parts, and the part that changed is there."""
    pieces, unit = cut_text(pair.second)
    ends = list(accumulate(map(len, pieces)))
    return unit == "part" and pieces[bisect_right(ends, pair.start)].removesuffix("\n") in emitted


def _other(token: str, characters: str, chosen: random.Random) -> str:
    """The token with one of its characters replaced."""
    place = chosen.randrange(len(token))
    new = chosen.choice([one for one in characters if one != token[place]])
    return token[:place] + new + token[place + 1 :]
