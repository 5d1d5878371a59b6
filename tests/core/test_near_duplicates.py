"""The near-duplicate rule: greedy and within delta, and what it promises about retrieval scores."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lam_vllm.bound import delta_of
from lam_vllm.encoders import load_encoder
from lam_vllm.encoders.base import OnePass
from lam_vllm.near_duplicates import RetainedWindows, find_match
from lam_vllm.ops.reference import l2_distances
from lam_vllm.types import Embedding, Match
from lam_vllm.windows import fixed_windows

CORPUS = Path(__file__).parents[1] / "data" / "corpus" / "trajectories.jsonl.xz"
TEXTS = ("alpha", "beta", "gamma", "delta", "alpha ", "beta ")
DIMENSION = 33


@cache
def _embed(text: str) -> Embedding:
    """A unit vector that is a function of the text; texts that differ in trailing space are near."""
    stem = sum(text.strip().encode())
    vector = np.random.default_rng(stem).standard_normal(DIMENSION)
    vector += 0.02 * np.random.default_rng(len(text)).standard_normal(DIMENSION)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def _never(text: str) -> Embedding:
    raise AssertionError(f"encoded {text!r}")


def _retained(*entries: tuple[str, bool]) -> RetainedWindows:
    retained = RetainedWindows(DIMENSION)
    for text, eligible in entries:
        retained.add(text, _embed(text), eligible)
    return retained


def test_the_first_window_is_encoded_once_and_matches_nothing() -> None:
    calls: list[str] = []

    def encode(text: str) -> Embedding:
        calls.append(text)
        return _embed(text)

    found = find_match("alpha", OnePass(encode), _retained(), 0.95)
    assert (found.match, found.boundary_pairs) == (None, 0)
    assert found.embedding.tobytes() == _embed("alpha").tobytes()
    assert calls == ["alpha"]


def test_the_same_text_matches_at_distance_zero_without_encoding() -> None:
    found = find_match("beta", OnePass(_never), _retained(("alpha", True), ("beta", True), ("beta", True)), 0.95)
    assert found.match == Match(1, 0.0)
    assert found.embedding.tobytes() == _embed("beta").tobytes()


def test_an_ineligible_window_of_the_same_text_lends_its_embedding_and_represents_nothing() -> None:
    found = find_match("alpha", OnePass(_never), _retained(("alpha", False)), 0.95)
    assert found.match is None
    assert found.embedding.tobytes() == _embed("alpha").tobytes()


def test_a_later_eligible_window_of_the_same_text_is_the_representative() -> None:
    found = find_match("alpha", OnePass(_never), _retained(("alpha", False), ("alpha", True)), 0.95)
    assert found.match == Match(1, 0.0)


def test_a_near_window_matches_with_its_exact_distance() -> None:
    retained = _retained(("beta", True), ("alpha", True))
    found = find_match("alpha ", OnePass(_embed), retained, 0.95)
    distance = float(l2_distances(_embed("alpha")[None], _embed("alpha "))[0])
    assert 0 < distance <= delta_of(0.95)
    assert found.match == Match(1, distance)


def test_the_lowest_indexed_eligible_window_represents_even_when_a_later_one_is_nearer() -> None:
    far, near = _embed("alpha "), _embed("alpha")
    retained = RetainedWindows(DIMENSION)
    for text, embedding, eligible in (("x", near, False), ("y", far, True), ("z", near, True)):
        retained.add(text, embedding, eligible)
    found = find_match("alpha", OnePass(lambda _: near), retained, 0.95)
    assert found.match is not None
    assert found.match.representative == 1
    assert found.match.distance > 0


def test_threshold_one_matches_another_text_only_with_an_identical_embedding() -> None:
    retained = _retained(("alpha", True))
    assert find_match("alpha ", OnePass(_embed), retained, 1.0).match is None
    assert find_match("other", OnePass(lambda _: _embed("alpha")), retained, 1.0).match == Match(0, 0.0)


def _worst_loss(all_rows: Embedding, kept_rows: Embedding, queries: int, seed: int) -> float:
    """By how much the best score over the kept rows falls below the best over all rows, for random unit queries."""
    random = np.random.default_rng(seed).standard_normal((queries, all_rows.shape[1]))
    probes = np.concatenate([random, all_rows.astype(np.float64)])
    probes /= np.linalg.norm(probes, axis=1, keepdims=True)
    best_all = (probes @ all_rows.T.astype(np.float64)).max(axis=1)
    best_kept = (probes @ kept_rows.T.astype(np.float64)).max(axis=1)
    return float((best_all - best_kept).max())


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), threshold_cos=st.sampled_from([0.8, 0.95, 0.99]), count=st.integers(1, 80))
def test_no_query_loses_more_than_the_largest_accepted_distance_on_synthetic_vectors(
    seed: int, threshold_cos: float, count: int
) -> None:
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((4, DIMENSION))
    vectors = centres[rng.integers(0, 4, count)] + rng.uniform(0, 0.4, (count, 1)) * rng.standard_normal(
        (count, DIMENSION)
    )
    rows = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    retained, distances = RetainedWindows(DIMENSION), [0.0]
    for index, row in enumerate(rows):
        match = find_match(str(index), OnePass(lambda _, row=row: row), retained, threshold_cos).match  # type: ignore[misc]
        if match is None:
            retained.add(str(index), row, eligible=True)
        else:
            distances.append(match.distance)
    assert max(distances) <= delta_of(threshold_cos)
    assert _worst_loss(rows, retained.rows, queries=50, seed=seed) <= max(distances) + 1e-6


def test_no_query_loses_more_than_the_largest_accepted_distance_on_a_recorded_run() -> None:
    encoder = load_encoder("minilm")
    with lzma.open(CORPUS, "rt", encoding="utf-8") as lines:
        runs = [run for run in map(json.loads, lines) if run["source"] == "swesmith_samples"]
    texts = [message["content"] for message in runs[2]["messages"] if message["role"] == "tool"]
    retained, rows, distances = RetainedWindows(encoder.dimension), [], []
    for text in texts:
        for window in fixed_windows(text, encoder.token_offsets, encoder.window_tokens):
            piece = text[window.start : window.end]
            found = find_match(piece, OnePass(encoder.encode), retained, encoder.threshold_cos)
            rows.append(found.embedding)
            if found.match is None:
                retained.add(piece, found.embedding, eligible=True)
            else:
                distances.append(found.match.distance)
    assert len(distances) >= 5
    assert 0 < max(distances) <= delta_of(encoder.threshold_cos)
    assert _worst_loss(np.stack(rows), retained.rows, queries=2000, seed=5) <= max(distances) + 1e-6


_ENTRIES = st.lists(st.tuples(st.sampled_from(TEXTS), st.booleans()), max_size=40)


def _state(retained: RetainedWindows) -> tuple[object, ...]:
    firsts = [(retained.first(text), retained.first(text, eligible_only=True)) for text in TEXTS]
    return len(retained), retained.rows.tobytes(), retained.eligible.tobytes(), firsts


@given(entries=_ENTRIES, data=st.data())
def test_a_fork_equals_a_history_that_stopped_there(entries: list[tuple[str, bool]], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(entries)))
    fork, stopped = _retained(*entries).fork(count), _retained(*entries[:count])
    assert _state(fork) == _state(stopped)
    for text in TEXTS:
        ours, theirs = (find_match(text, OnePass(_embed), each, 0.95) for each in (fork, stopped))
        assert ours.match == theirs.match
        assert ours.embedding.tobytes() == theirs.embedding.tobytes()


@given(entries=_ENTRIES, ours=_ENTRIES, theirs=_ENTRIES, data=st.data())
def test_a_fork_and_its_origin_grow_apart(
    entries: list[tuple[str, bool]],
    ours: list[tuple[str, bool]],
    theirs: list[tuple[str, bool]],
    data: st.DataObject,
) -> None:
    count = data.draw(st.integers(0, len(entries)))
    origin = _retained(*entries)
    fork = origin.fork(count)
    for text, eligible in ours:
        origin.add(text, _embed(text), eligible)
    for text, eligible in theirs:
        fork.add(text, _embed(text), eligible)
    assert _state(origin) == _state(_retained(*entries, *ours))
    assert _state(fork) == _state(_retained(*entries[:count], *theirs))


def test_indices_count_up_and_views_outlive_growth() -> None:
    retained = _retained(("alpha", True))
    first, rows = retained.embedding(0), retained.rows
    indices = [retained.add(f"text {number}", _embed(str(number)), True) for number in range(100)]
    assert indices == list(range(1, 101))
    assert first.tobytes() == _embed("alpha").tobytes() == retained.embedding(0).tobytes()
    assert rows.shape == (1, DIMENSION)
    assert retained.embedding(100).tobytes() == _embed("99").tobytes()


def test_what_is_retained_cannot_be_written_through_a_view() -> None:
    retained = _retained(("alpha", True))
    for view in (retained.rows, retained.eligible, retained.embedding(0)):
        with pytest.raises(ValueError, match="read-only"):
            view[...] = 0


def test_the_size_counts_rows_and_distinct_texts() -> None:
    retained = RetainedWindows(DIMENSION)
    empty = retained.nbytes
    retained.add("x" * 1000, _embed("x"), True)
    once = retained.nbytes
    assert once >= empty + 1000
    retained.add("x" * 1000, _embed("x"), True)
    assert retained.nbytes == once
    for number in range(1000):
        retained.add(str(number), _embed("x"), True)
    assert retained.nbytes >= 1000 * DIMENSION * 4


@pytest.mark.parametrize("index", [-1, 1])
def test_an_index_that_does_not_exist_is_refused(index: int) -> None:
    with pytest.raises(IndexError, match=f"index: {index} is not allowed"):
        _retained(("alpha", True)).embedding(index)


@pytest.mark.parametrize("count", [-1, 2])
def test_a_fork_beyond_what_is_retained_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"count: {count} is not allowed; allowed: 0 to 1"):
        _retained(("alpha", True)).fork(count)


@pytest.mark.parametrize("embedding", [np.zeros(DIMENSION + 1, np.float32), np.zeros(DIMENSION)])
def test_an_embedding_of_another_shape_or_type_is_refused(embedding: Embedding) -> None:
    with pytest.raises(ValueError, match="embedding: shape"):
        RetainedWindows(DIMENSION).add("text", embedding, True)
