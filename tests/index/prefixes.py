"""Prefixes that are indexed: made ones, and those of random chats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lam_vllm.compactor import Compactor
from lam_vllm.config import Profile, make_config
from lam_vllm.index import PrefixWindows
from lam_vllm.memory import SeenWindow
from lam_vllm.types import Embedding
from tests.core.chats import BagOfWords

DIMENSION = 40
EPS = 0.004


def unit_rows(count: int, seed: int = 0, dimension: int = DIMENSION) -> Embedding:
    """Rows of unit length, every fifth one a copy of the one before it."""
    rows = np.random.default_rng(seed).standard_normal((count, dimension))
    rows[4::5] = rows[3::5][: len(rows[4::5])]
    made: Embedding = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return made


def prefix_of(rows: Embedding, digest: str = "p", *earlier: str) -> PrefixWindows:
    """A prefix with a message for each row."""
    windows = [SeenWindow(place, None, place + 1, 0, 100, place) for place in range(len(rows))]
    return PrefixWindows(digest, earlier, tuple(windows), rows)


def compactor_of(profile: Profile) -> Compactor:
    """A compactor that embeds bags of words; its memo remembers prefixes."""
    return Compactor(make_config({"profile": profile, "min_tokens": 1}), len, BagOfWords())


def windows_of(compactor: Compactor, messages: Sequence[Any], salt: str = "") -> PrefixWindows:
    """What a compaction of these messages leaves to be indexed."""
    kept: list[PrefixWindows] = []
    compactor.compact(messages, salt=salt, keep=kept.append)
    (prefix,) = kept
    return prefix
