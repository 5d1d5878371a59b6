"""Whether the windows that L1 deletes depend on how they were encoded, and how far the nearest pair is from deciding.

The rule is *defined* on canonical embeddings: each text alone, unpadded, on one thread. Here the same model runs as a
fast path would, and the deletion sets of both are compared by digest.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from lam_vllm.bound import delta_of
from lam_vllm.errors import MissingExtraError, OptionError
from lam_vllm.evaluation.measures.packing import Distances, greedy, l2_matrix
from lam_vllm.search.verify import BOUNDARY_L2
from lam_vllm.types import Embedding

Arrival = Literal["one by one", "whole run", "random chunks"]
Deletions: TypeAlias = tuple[tuple[int, int], ...]  # (window, the window that stands for it), in order
_LARGEST_CHUNK = 5
_POSITIONS = 512


@dataclass(frozen=True, slots=True)
class Decided:
    """What L1 did to one run. `boundary_pairs` lie within 1e-5 of delta, `nearest_to_delta` is the least |d - delta|.

    Pairs are those of a window and a retained one before it.
    """

    deletions: Deletions
    boundary_pairs: int
    nearest_to_delta: float


class BatchedModel:
    """A sentence-transformers model that encodes several texts at once, the shorter ones padded.

    Raises:
        MissingExtraError: sentence-transformers is not installed.
    """

    def __init__(self, folder: Path) -> None:
        if find_spec("sentence_transformers") is None:
            raise MissingExtraError("a batched encoder", "encoder")
        from sentence_transformers import SentenceTransformer

        self._model = SentenceTransformer(str(folder), device="cpu", local_files_only=True).float().eval()
        self._model.max_seq_length = _POSITIONS

    def encode(self, texts: Sequence[str], batch_size: int, threads: int) -> Embedding:
        """(N, D) float32 of unit length. Texts are batched by length; torch's thread count is as before afterwards."""
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            vectors = self._model.encode(
                list(texts), batch_size=batch_size, show_progress_bar=False, normalize_embeddings=True
            )
        finally:
            torch.set_num_threads(before)
        wide = np.asarray(vectors).astype(np.float64)
        scaled = wide / np.sqrt(np.square(wide).sum(axis=1, keepdims=True))
        return np.asarray(scaled, dtype=np.float32)


def groups(observations: Sequence[Sequence[str]], arrival: Arrival, seed: int = 0) -> list[list[str]]:
    """The windows that arrive together, in order; `observations` holds the windows of each. Empty groups are left out.

    Raises:
        OptionError: there is no such way to arrive.
    """
    if arrival == "whole run":
        sizes = [len(observations)]
    elif arrival == "one by one":
        sizes = [1] * len(observations)
    elif arrival == "random chunks":
        draw = random.Random(seed)
        sizes = [draw.randint(1, _LARGEST_CHUNK) for _ in observations]
    else:
        raise OptionError("arrival", arrival, "'one by one', 'whole run' or 'random chunks'")
    made, place = [], 0
    for size in sizes:
        made.append([window for windows in observations[place : place + size] for window in windows])
        place += size
    return [group for group in made if group]


def embed_groups(arriving: Sequence[Sequence[str]], encode: Callable[[Sequence[str]], Embedding]) -> Embedding:
    """(N, D) embeddings of all windows, each group encoded by itself.

    Raises:
        ValueError: there is no group.
    """
    if not arriving:
        raise ValueError("arriving: no windows; allowed: at least one group")
    return np.concatenate([encode(group) for group in arriving])


def decide(rows: Embedding, threshold_cos: float) -> Decided:
    """The greedy rule on the (N, D) embeddings of one run."""
    distances, delta = l2_matrix(rows), delta_of(threshold_cos)
    assignment = greedy(distances, delta)
    gaps = _gaps(distances, assignment.retained, delta)
    dropped = np.flatnonzero(~assignment.retained)
    deletions = tuple((int(window), int(assignment.representative[window])) for window in dropped)
    return Decided(deletions, int((gaps <= BOUNDARY_L2).sum()), float(gaps.min(initial=np.inf)))


def _gaps(distances: Distances, retained: np.ndarray[tuple[int], np.dtype[np.bool_]], delta: float) -> Distances:
    """|d - delta| of every window and every retained one before it."""
    before = np.tril(np.ones_like(distances, dtype=np.bool_), k=-1) & retained[None, :]
    gaps: Distances = np.abs(distances[before] - delta)
    return gaps


def digest(deletions: Mapping[str, Deletions]) -> str:
    """16 hex digits that name the deletions of these runs; the order in which runs were added does not matter."""
    data = json.dumps({run: deletions[run] for run in sorted(deletions)}).encode()
    return hashlib.sha256(data).hexdigest()[:16]


def agreement(sets: Sequence[Collection[object]]) -> tuple[float, float]:
    """Share of what any of these sets holds that all of them hold, and the mean Jaccard index of each two.

    Two empty sets agree.

    Raises:
        ValueError: there are fewer than two sets.
    """
    if len(sets) < 2:
        raise ValueError(f"sets: {len(sets)} is not allowed; allowed: two or more")
    frozen = [frozenset(members) for members in sets]
    pairs = [_jaccard(one & other, one | other) for one, other in combinations(frozen, 2)]
    return _jaccard(frozenset.intersection(*frozen), frozenset.union(*frozen)), sum(pairs) / len(pairs)


def _jaccard(shared: frozenset[object], either: frozenset[object]) -> float:
    return len(shared) / len(either) if either else 1.0
