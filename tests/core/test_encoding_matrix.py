"""Recorded runs, the real encoder: the answer does not depend on how embeddings were made, and the audit would tell.

`bench/two_pass.py` does the same over the whole corpus and every combination.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
import pytest

from lam_vllm import Compactor, CompactorConfig
from lam_vllm.compactors import Compactors
from lam_vllm.config import Profile
from lam_vllm.encoders.base import BatchEncoder, Pass
from lam_vllm.encoders.pool import EncoderPool
from lam_vllm.encoders.two_pass import FastPass, band_around, measure_band
from lam_vllm.evaluation.corpus import Run
from lam_vllm.messages import quick_digests
from lam_vllm.records import open_records
from lam_vllm.serving.prefix_watch import PrefixWatch
from lam_vllm.serving.work import Compactions, Handler
from lam_vllm.stores import StoreSettings
from lam_vllm.types import Compaction, Embedding
from lam_vllm.windows import fixed_windows, line_windows

PROFILES: tuple[Profile, ...] = ("guarded", "paper")
SMALL = ("sweagent_demos/trajectories/demonstrations/ctf/pwn/warmup.traj", "taubench_airline/7/0")
FEW, MORE = 8, 14
"""Messages of each run, and of the one in which most windows repeat: canonical embeddings of all take minutes."""


class Counting:
    """The real encoder. Canonical embeddings are made once for the whole module, fast ones each time; all are counted.

    `disturb` changes the rows of the fast pass.
    """

    def __init__(self, encoder: BatchEncoder, encode: Callable[[str], Embedding]) -> None:
        self.fingerprint, self.name, self.dimension = encoder.fingerprint, encoder.name, encoder.dimension
        self.window_tokens, self.threshold_cos = encoder.window_tokens, encoder.threshold_cos
        self.token_offsets, self.passes = encoder.token_offsets, encoder.passes
        self.disturb: Callable[[Embedding], Embedding] = lambda rows: rows
        self.fast: Counter[str] = Counter()
        self.canonical: Counter[str] = Counter()
        self._encode, self._encode_batch = encode, encoder.encode_batch
        self._lock = Lock()

    def encode(self, text: str) -> Embedding:
        with self._lock:
            self.canonical[text] += 1
        return self._encode(text).copy()

    def encode_batch(self, texts: Sequence[str], way: Pass) -> Embedding:
        with self._lock:
            self.fast.update(texts)
        return self.disturb(self._encode_batch(texts, way))


@dataclass
class Laboratory:
    """The encoder, the runs, and what canonical embeddings make of them."""

    encoder: BatchEncoder
    encode: Callable[[str], Embedding]
    count_tokens: Callable[[str], int]
    runs: dict[str, list[Any]]
    guard_band: float

    def __post_init__(self) -> None:
        self.answers = {
            (run, profile): self.compactor(profile, Counting(self.encoder, self.encode)).compact(messages)
            for run, messages in self.runs.items()
            for profile in PROFILES
        }

    def compactor(self, profile: Profile, encoder: Any, **config: Any) -> Compactor:
        return Compactor(CompactorConfig(profile=profile, **config), self.count_tokens, encoder)

    @contextmanager
    def pool(
        self, precision: str, batch: int, threads: int = 1, guard_band: float | None = None
    ) -> Iterator[tuple[EncoderPool, Counting]]:
        """A pool whose fast pass is this one, and the encoder in it."""
        counting = Counting(self.encoder, self.encode)
        way = Pass(f"{precision}, batches of {batch}", precision, batch)
        band = self.guard_band if guard_band is None else guard_band
        pool = EncoderPool(counting, FastPass(way, band, {}, "made"), threads)
        try:
            yield pool, counting
        finally:
            pool.close()

    def differing(self, encoder: EncoderPool, runs: Sequence[str]) -> list[tuple[str, Profile]]:
        """Runs and profiles whose answer by this encoder is another than by canonical embeddings."""
        return [
            (run, profile)
            for profile in PROFILES
            for compactor in [self.compactor(profile, encoder)]
            for run in runs
            if not same(compactor.compact(self.runs[run]), self.answers[run, profile])
        ]


def same(one: Compaction, other: Compaction) -> bool:
    figures = ("removed_tokens", "stub_tokens", "boundary_pairs", "reasons", "observations", "prefix_digest")
    return (one.messages, one.decisions) == (other.messages, other.decisions) and all(
        getattr(one.report, figure) == getattr(other.report, figure) for figure in figures
    )


@pytest.fixture(scope="module")
def laboratory(encoder: BatchEncoder, six_runs: list[Run], count_tokens: Callable[[str], int]) -> Laboratory:
    messages = {run.id: list(run.messages[: MORE if run.id == SMALL[1] else FEW]) for run in six_runs}
    results = [str(message["content"]) for run in messages.values() for message in run if message["role"] == "tool"]
    sample = sorted(results, key=len)[len(results) // 2 :][:6]
    cut = [text[: fixed_windows(text, encoder.token_offsets, encoder.window_tokens)[0].end] for text in sample]
    band = band_around(measure_band(encoder, encoder.passes()[-1], cut))
    return Laboratory(encoder, lru_cache(maxsize=None)(encoder.encode), count_tokens, messages, band)


def precisions(laboratory: Laboratory) -> list[str]:
    return list(dict.fromkeys(way.precision for way in laboratory.encoder.passes()))


def test_both_layers_have_something_to_decide_here(laboratory: Laboratory) -> None:
    layers = Counter(decision.layer for answer in laboratory.answers.values() for decision in answer.decisions)
    assert layers["l0"] > 10
    assert layers["l1"] > 2


@pytest.mark.parametrize(("batch", "threads"), [(1, 1), (2, 1), (7, 1), (16, 1), (32, 1), (64, 1), (2, 2), (64, 2)])
def test_batches_threads_and_precision_change_nothing(laboratory: Laboratory, batch: int, threads: int) -> None:
    for precision in precisions(laboratory)[-1 if threads == 2 else 0 :]:
        with laboratory.pool(precision, batch, threads) as (pool, counting):
            assert laboratory.differing(pool, SMALL) == []
            assert counting.fast


@pytest.mark.parametrize("batch", [1, 8])
def test_the_quickest_precision_changes_nothing_in_any_of_the_runs(laboratory: Laboratory, batch: int) -> None:
    with laboratory.pool(precisions(laboratory)[-1], batch) as (pool, counting):
        assert laboratory.differing(pool, tuple(laboratory.runs)) == []
        assert set(counting.fast.values()) == {1}


def test_sixteen_requests_at_once_change_nothing(laboratory: Laboratory) -> None:
    asked = [(run, profile, salt) for salt in ("", "other") for run in SMALL for profile in PROFILES] * 2
    with (
        laboratory.pool(precisions(laboratory)[-1], 8, threads=2) as (pool, counting),
        ThreadPoolExecutor(len(asked)) as requests,
    ):
        compactors = {profile: laboratory.compactor(profile, pool) for profile in PROFILES}
        begun = [
            requests.submit(compactors[profile].compact, laboratory.runs[run], salt=salt)
            for run, profile, salt in asked
        ]
        answers = [request.result() for request in begun]
    assert len(asked) == 16
    for (run, profile, _), answer in zip(asked, answers, strict=True):
        assert answer.messages == laboratory.answers[run, profile].messages
        assert answer.decisions == laboratory.answers[run, profile].decisions
    assert set(counting.fast.values()) <= {1, 2}, "twice where both salts hold it"


@pytest.mark.parametrize("step", [1, 3])
def test_how_messages_arrive_changes_nothing(laboratory: Laboratory, step: int) -> None:
    with laboratory.pool(precisions(laboratory)[-1], 7) as (pool, _):
        for run in SMALL:
            messages = laboratory.runs[run]
            for profile in PROFILES:
                compactor = laboratory.compactor(profile, pool)
                for end in range(step, len(messages) + step, step):
                    grown = compactor.compact(messages[:end])
                assert same(grown, laboratory.answers[run, profile])


def test_close_decisions_are_settled_by_canonical_embeddings_each_made_once(laboratory: Laboratory) -> None:
    with laboratory.pool(precisions(laboratory)[-1], 8, guard_band=2.0) as (pool, counting):
        assert laboratory.differing(pool, SMALL) == []
        assert set(counting.canonical.values()) == {1}
        assert len(counting.canonical) > 5


@pytest.mark.parametrize("profile", PROFILES)
def test_the_encoder_calls_of_a_turn_are_bounded_by_its_new_windows(laboratory: Laboratory, profile: Profile) -> None:
    cut = {"guarded": line_windows, "paper": fixed_windows}[profile]
    with laboratory.pool(precisions(laboratory)[-1], 8, guard_band=0.1) as (pool, counting):
        for run in SMALL:
            compactor, messages = laboratory.compactor(profile, pool), laboratory.runs[run]
            for before, end in pairwise(range(len(messages) + 1)):
                new = messages[before:end]
                texts = [str(message["content"]) for message in new if message["role"] == "tool"]
                windows = sum(len(cut(text, pool.token_offsets, pool.window_tokens)) for text in texts)
                calls, again = counting.fast.total(), counting.canonical.total()
                work = compactor.compact(messages[:end], salt=run).report.work
                assert counting.fast.total() - calls == work.encoder_calls <= work.new_windows <= windows
                assert counting.canonical.total() - again == work.canonical_calls
            assert set(counting.canonical.values()) <= {1}
            compactor.compact(messages, salt=run)
        assert set(counting.fast.values()) == {1}


def test_at_one_nothing_but_identical_text_and_identical_vectors_is_a_match(laboratory: Laboratory) -> None:
    with laboratory.pool(precisions(laboratory)[-1], 8) as (pool, _):
        for run in SMALL:
            compaction = laboratory.compactor("paper", pool, threshold_cos=1.0).compact(laboratory.runs[run])
            assert set(compaction.report.distances) <= {0.0}
            shown: list[Embedding] = []
            for message in laboratory.runs[run]:
                text = str(message["content"]) if message["role"] == "tool" else ""
                for window in fixed_windows(text, pool.token_offsets, pool.window_tokens):
                    vector = laboratory.encode(text[window.start : window.end])
                    gone = any(
                        laboratory.runs[run][decision.message] is message and decision.start == window.start
                        for decision in compaction.decisions
                        if decision.layer == "l1"
                    )
                    assert gone == any(np.array_equal(vector, other) for other in shown)
                    shown.append(vector)


def test_the_last_token_of_every_result_is_in_a_window(laboratory: Laboratory, six_runs: list[Run]) -> None:
    offsets, budget = laboratory.encoder.token_offsets, laboratory.encoder.window_tokens
    results = [str(message["content"]) for run in six_runs for message in run.messages if message["role"] == "tool"]
    assert len(results) > 60
    for text in filter(None, results):
        last_start, last_end = max(offsets(text), default=(0, 0))
        for cut in (fixed_windows, line_windows):
            windows = cut(text, offsets, budget)
            assert "".join(text[window.start : window.end] for window in windows) == text
            assert any(window.start <= last_start and last_end <= window.end for window in windows)
            assert all(window.tokens <= budget for window in windows)


def test_an_audit_finds_nothing(laboratory: Laboratory) -> None:
    with laboratory.pool(precisions(laboratory)[-1], 8) as (pool, _):
        for profile in PROFILES:
            compactor = laboratory.compactor(profile, pool)
            for run in SMALL:
                audit = compactor.compact(laboratory.runs[run], canonical=True)
                assert same(audit, compactor.compact(laboratory.runs[run]))


@pytest.mark.parametrize(("noise", "found"), [(0.0, None), (1.0, "guard_band")])
def test_the_audit_tells_a_guard_band_that_is_too_narrow(
    laboratory: Laboratory, noise: float, found: str | None
) -> None:
    draw = np.random.default_rng(0)

    def disturb(rows: Embedding) -> Embedding:
        moved = rows + noise * draw.standard_normal(rows.shape) / np.sqrt(rows.shape[1])
        unit: Embedding = (moved / np.linalg.norm(moved, axis=1, keepdims=True)).astype(np.float32)
        return unit

    config, messages = CompactorConfig(profile="paper"), laboratory.runs["taubench_airline/7/0"]
    band = laboratory.guard_band if found is None else 1e-4
    with laboratory.pool(precisions(laboratory)[-1], 8, guard_band=band) as (pool, counting):
        counting.disturb = disturb
        compactors = Compactors(laboratory.count_tokens, pool, "smollm2")
        auditor = Handler(
            Compactions(compactors), PrefixWatch(), open_records(StoreSettings(None, 1_000_000, 1_000.0), bytes(32))
        )
        emitted = auditor.compactors.get(config).compact(messages, salt="s").messages
        assert auditor.difference(config, messages, quick_digests(emitted, "s")[-1], "s") == found
        by_comparison = laboratory.differing(pool, ["taubench_airline/7/0"])
        assert (("taubench_airline/7/0", "paper") in by_comparison) == (found is not None)
