"""Deletions under other encodings: the pieces by hand, and one small run encoded for real in several ways."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from lam_vllm.bound import delta_of
from lam_vllm.encoders.base import Encoder
from lam_vllm.errors import OptionError
from lam_vllm.evaluation.baselines.windowed import WindowEmbeddings
from lam_vllm.evaluation.corpus import find_run
from lam_vllm.evaluation.encoder_variants import packaged_folder
from lam_vllm.evaluation.measures.determinism import (
    Arrival,
    BatchedModel,
    Deletions,
    agreement,
    decide,
    digest,
    embed_groups,
    groups,
)
from lam_vllm.types import Embedding

CORPUS = Path(__file__).parents[1] / "data/corpus/trajectories.jsonl.xz"
SMALL_RUN = "taubench_airline/2/0"
OBSERVATIONS = [["a", "b"], [], ["c"], ["d", "e"]]


def test_observations_arrive_one_by_one_or_all_at_once() -> None:
    assert groups(OBSERVATIONS, "one by one") == [["a", "b"], ["c"], ["d", "e"]]
    assert groups(OBSERVATIONS, "whole run") == [["a", "b", "c", "d", "e"]]


@pytest.mark.parametrize("seed", range(20))
def test_random_chunks_keep_every_window_in_order(seed: int) -> None:
    chunks = groups([[str(number)] for number in range(12)], "random chunks", seed)
    assert [window for chunk in chunks for window in chunk] == [str(number) for number in range(12)]
    assert all(1 <= len(chunk) <= 5 for chunk in chunks)
    assert chunks == groups([[str(number)] for number in range(12)], "random chunks", seed)


def test_an_unknown_arrival_is_refused() -> None:
    with pytest.raises(OptionError, match="arrival: 'late' is not allowed"):
        groups(OBSERVATIONS, "late")  # type: ignore[arg-type]


def test_no_window_is_refused() -> None:
    with pytest.raises(ValueError, match="no windows"):
        embed_groups([], lambda _: np.empty((0, 2), np.float32))


def at_distances(*distances: float) -> Embedding:
    """A unit vector of the plane, and others at these l2 distances from it, negative ones on its other side."""
    angles = [0.0, *(2 * np.arcsin(distance / 2) for distance in distances)]
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_a_pair_just_within_delta_is_deleted_and_counted_as_close() -> None:
    delta = delta_of(0.95)
    decided = decide(at_distances(0.2, -(delta - 5e-6), delta + 5e-6), 0.95)
    assert decided.deletions == ((1, 0), (2, 0))
    assert decided.boundary_pairs == 2
    assert decided.nearest_to_delta == pytest.approx(5e-6, abs=1e-6)


def test_pairs_with_a_deleted_window_do_not_count() -> None:
    delta = delta_of(0.95)
    decided = decide(at_distances(0.1, delta + 0.1), 0.95)  # the last is at about delta from the second, which is gone
    assert decided.deletions == ((1, 0),)
    assert decided.nearest_to_delta == pytest.approx(0.1, abs=1e-6)


def test_the_digest_names_the_deletions_whatever_the_order_of_runs() -> None:
    one = digest({"a": ((1, 0),), "b": ()})
    assert one == digest({"b": (), "a": ((1, 0),)})
    others: list[dict[str, Deletions]] = [
        {"a": ((1, 0),)},
        {"a": ((2, 0),), "b": ()},
        {"a": ((1, 1),), "b": ()},
        {"a": (), "b": ((1, 0),)},
    ]
    assert len({one, *(digest(other) for other in others)}) == 5


def test_agreement_of_three_sets() -> None:
    shared, jaccard = agreement([{1, 2}, {1, 2, 3}, {1, 4}])
    assert shared == 1 / 4
    assert jaccard == pytest.approx((2 / 3 + 1 / 3 + 1 / 4) / 3)


def test_empty_sets_agree_and_one_set_has_nobody_to_agree_with() -> None:
    assert agreement([set(), set()]) == (1.0, 1.0)
    with pytest.raises(ValueError, match="two or more"):
        agreement([{1}])


def test_a_recorded_run_loses_the_same_windows_in_every_batch_size_and_arrival(encoder: Encoder) -> None:
    windows, run = WindowEmbeddings(encoder), find_run(CORPUS, SMALL_RUN)
    windowed, canonical = windows.windowed(run), windows.rows(run)
    pairs = zip(windowed.windows, windowed.texts(), strict=True)
    observations = [[text for _, text in found] for _, found in groupby(pairs, key=lambda pair: pair[0].observation)]
    model = BatchedModel(packaged_folder())

    alone = embed_groups(groups(observations, "one by one"), lambda texts: model.encode(texts, 1, 1))
    assert alone.tobytes() == canonical.tobytes()
    expected = decide(canonical, 0.95).deletions
    assert expected
    for arrival in get_args(Arrival):
        padded = embed_groups(groups(observations, arrival), lambda texts: model.encode(texts, 4, 1))
        assert 0 < np.abs(padded - canonical).max() < 1e-5 or arrival == "one by one"
        assert decide(padded, 0.95).deletions == expected
