"""bench/codec.py: the ways it compares, the figures it makes of small matrices, and its tables."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from lam_vllm.codec import encode
from lam_vllm.encoders import Encoder
from lam_vllm.evaluation.corpus import Run
from tests.codec.matrices import embeddings

sys.path.append(str(Path(__file__).parents[2] / "bench"))  # the benchmarks import one another by name

import codec
from codec_index import kept_indexes
from codec_tables import tables
from codec_ways import Way, ways

EPS = 0.004


@pytest.mark.parametrize("way", ways(), ids=lambda way: way.name)
def test_every_way_reads_what_it_wrote(way: Way) -> None:
    rows = embeddings(40, 64)
    decoded = way.read(way.write(rows, EPS), rows.shape, EPS)
    assert decoded.shape == rows.shape and decoded.dtype == np.float32
    if way.bounded:
        assert np.abs(decoded - rows).max() <= EPS * 1.0001
    cosines = (decoded * rows).sum(axis=1) / np.linalg.norm(decoded, axis=1)
    assert cosines.min() > 0.65


def test_ten_of_ten_are_found_in_the_index_itself_and_fewer_in_another() -> None:
    index, queries = embeddings(60, 32), embeddings(8, 32, seed=1)
    best = codec.best_ten(index, queries)
    scores = queries @ index.T
    assert np.allclose(np.take_along_axis(scores, best, 1)[:, -1], np.sort(scores, axis=1)[:, -10])
    assert codec.recall_at_10(best, best) == 1.0
    assert codec.recall_at_10(best, codec.best_ten(np.sign(index), queries)) < 1.0
    assert codec.recall_at_10(best, best + 1000) == 0.0


def test_the_index_of_a_run_is_counted_as_it_is_kept(encoder: Encoder) -> None:
    same, other = "one line of what a tool said\n" * 20, "something else altogether, about a river in spring\n" * 20
    results = tuple({"role": "tool", "content": text} for text in (same, other, same))
    kept = kept_indexes([Run("one", "here", ({"role": "user", "content": "task"}, *results))], encoder)
    assert (kept["windows"], kept["retained"]) == (3, 2)
    assert kept["composite_kept"] == 3 * 4 * 384 / kept["kept_bytes"] > kept["composite_charged"]


def test_a_value_over_the_bound_is_counted() -> None:
    rows = embeddings(3, 32)
    assert codec.violations(rows, rows, EPS) == 0
    assert codec.violations(rows, rows + np.float32(2 * EPS), EPS) == rows.size
    assert codec.violations(rows, np.full_like(rows, np.nan), EPS) == rows.size


def test_the_composite_counts_every_window_and_the_map() -> None:
    rows = embeddings(300, 64)
    found = codec.sizes([codec.RunRows(rows, 400)], EPS)
    streams = sum(len(encode(part, EPS, "fixed")) for part in (rows[:256], rows[256:]))
    assert found["fixed"]["ratio"] == rows.nbytes / streams
    assert found["fixed"]["composite"] == 400 * 256 / (streams + 4 * 100)
    assert found["fixed"]["violations"] == found["dense"]["violations"] == 0


def test_tables_are_made_of_the_figures() -> None:
    runs = [codec.RunRows(embeddings(30, 64, seed), 40) for seed in range(3)]
    kept = {"windows": 240, "retained": 180, "composite_kept": 8.5, "composite_charged": 8.25}
    figures = {**codec.figures_of({"one": runs, "other": runs}), "kept": kept}
    text = tables(figures)
    assert figures["bound_violations"] == 0 and figures["sources"]["all"]["windows"] == 240
    assert f"| all | 6 | 240 | 180 | {figures['fixed_ratio_1pct']:.2f} | {figures['codec_ratio_1pct']:.2f} |" in text
    assert "| index rows as kept | 240 | 180 | 8.50 |" in text
    assert "| codec, 1% | 6.53 | 0.6491 | 0.9931 |" in text and "| zfpy, 2-D | 0.3% |" in text
