"""Six recorded runs that cover every source: what is promised, with the real encoder and tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pytest

from lam_vllm import Compactor, CompactorConfig, prefix_breaks, reconstruct
from lam_vllm.config import Profile
from lam_vllm.encoders.base import Encoder
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.evidence import distinct_lines, gold_lines
from lam_vllm.types import Embedding
from lam_vllm.windows import fixed_windows

PROFILES: tuple[Profile, ...] = ("exact", "guarded", "paper")


class Remembering:
    """The real encoder; a text that many compactors meet is encoded once for the whole module."""

    def __init__(self, encoder: Encoder) -> None:
        self.fingerprint, self.name, self.dimension = encoder.fingerprint, encoder.name, encoder.dimension
        self.window_tokens, self.threshold_cos = encoder.window_tokens, encoder.threshold_cos
        self.token_offsets = lru_cache(maxsize=4096)(encoder.token_offsets)
        self._encode = lru_cache(maxsize=4096)(encoder.encode)

    def encode(self, text: str) -> Embedding:
        return self._encode(text).copy()


@pytest.fixture(scope="module")
def remembering(encoder: Encoder) -> Encoder:
    return Remembering(encoder)


@pytest.fixture(params=range(6))
def run(request: pytest.FixtureRequest, six_runs: list[Run]) -> Run:
    place: int = request.param
    return six_runs[place]


@pytest.fixture(params=PROFILES)
def make(
    request: pytest.FixtureRequest, count_tokens: Callable[[str], int], remembering: Encoder
) -> Callable[[], Compactor]:
    profile: Profile = request.param
    encoder = None if profile == "exact" else remembering
    return lambda: Compactor(CompactorConfig(profile=profile), count_tokens, encoder)


def test_exact_gives_back_every_byte(run: Run, count_tokens: Callable[[str], int]) -> None:
    compaction = Compactor(CompactorConfig(profile="exact"), count_tokens).compact(run.messages)
    assert compaction.changed
    assert reconstruct(compaction.messages) == list(run.messages)


@pytest.mark.parametrize("profile", ["exact", "guarded"])
def test_no_distinct_line_and_no_gold_line_is_lost(
    run: Run, profile: Profile, count_tokens: Callable[[str], int], remembering: Encoder
) -> None:
    encoder = None if profile == "exact" else remembering
    compacted = Compactor(CompactorConfig(profile=profile), count_tokens, encoder).compact(run.messages).messages
    lines = distinct_lines(run.messages, compacted)
    assert lines.distinct + lines.long_distinct > 50
    assert lines.lost == ()
    assert lines.long_readable == lines.long_distinct
    if run.gold_patch:
        evidence = gold_lines(run.messages, compacted, run.gold_patch)
        assert evidence.kept == evidence.witnessed > 0


def test_every_prefix_is_emitted_as_it_was(run: Run, make: Callable[[], Compactor]) -> None:
    assert prefix_breaks(lambda messages: make().compact(messages), run.messages[:40]) == []


def test_one_at_a_time_or_in_groups_gives_the_bytes_of_all_at_once(run: Run, make: Callable[[], Compactor]) -> None:
    whole = make().compact(run.messages)
    for step in (1, 3, 7):
        compactor = make()
        for end in range(step, len(run.messages) + step, step):
            grown = compactor.compact(run.messages[:end])
        assert (grown.messages, grown.decisions) == (whole.messages, whole.decisions)


def test_every_substitution_is_within_the_bound(run: Run, make: Callable[[], Compactor]) -> None:
    compaction = make().compact(run.messages)
    distances = compaction.report.distances
    assert len(distances) == sum(decision.layer == "l1" for decision in compaction.decisions)
    assert compaction.report.delta_hat == max(distances, default=0.0) <= compaction.report.delta


def test_the_best_score_of_any_query_falls_by_at_most_delta_hat(
    run: Run, count_tokens: Callable[[str], int], remembering: Encoder
) -> None:
    compaction = Compactor(CompactorConfig(profile="paper"), count_tokens, remembering).compact(run.messages)
    dropped = {(d.message, d.start, d.end) for d in compaction.decisions if d.layer == "l1"}
    rows, kept = [], []
    for index, message in enumerate(run.messages):
        if message["role"] != "tool":
            continue
        text = message["content"]
        for window in fixed_windows(text, remembering.token_offsets, remembering.window_tokens):
            rows.append(remembering.encode(text[window.start : window.end]))
            kept.append((index, window.start, window.end) not in dropped)
    assert kept.count(False) == len(dropped)
    queries = np.random.default_rng(0).standard_normal((1000, remembering.dimension))
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    scores = queries @ np.asarray(rows, np.float64).T
    best, best_kept = scores.max(axis=1), scores[:, kept].max(axis=1)
    assert (best_kept >= best - compaction.report.delta_hat - 1e-12).all()
