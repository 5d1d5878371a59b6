"""The two layers in both orders, on words that can be counted by eye."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lam_vllm.encoders.base import Encoder
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.measures.layers import LayerOrders, cut, exact_layer, layer_orders, near_layer
from lam_vllm.evaluation.score import observation_texts
from lam_vllm.types import Embedding

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class LetterCounts:
    """A stand-in at the encoder seam: tokens are words, windows have four, embeddings count letters."""

    name = fingerprint = "letters"
    dimension = len(LETTERS)
    window_tokens = 4
    threshold_cos = 0.9

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def token_offsets(self, text: str) -> list[tuple[int, int]]:
        return [found.span() for found in re.finditer(r"\S+", text)]

    def encode(self, text: str) -> Embedding:
        self.encoded.append(text)
        vector = np.array([text.count(letter) + 1e-3 for letter in LETTERS], np.float32)
        return (vector / np.linalg.norm(vector)).astype(np.float32)


def words(text: str) -> int:
    return len(text.split())


def test_l0_keeps_the_first_of_equal_lines_and_counts_the_others() -> None:
    assert exact_layer(["a b\nc\na b", "c\nd"], words) == (("a b\nc", "d"), 3)


def test_l0_may_leave_nothing_of_a_text() -> None:
    assert exact_layer(["a", "a\na"], words) == (("a", ""), 2)


def test_l1_drops_near_windows_whole_and_compares_with_retained_ones_only() -> None:
    encoder = LetterCounts()
    # cos(a a a a, a a a b) = .949 and cos(a a a b, a a b b) = .894, but cos(a a a a, a a b b) = .707
    pieces = cut(["a a a a", "a a a b", "a a b b", "a b a b"], encoder)
    found = near_layer(pieces, encoder.encode, encoder.dimension, 0.85)
    assert (found.left, found.dropped_windows, found.removed_tokens) == (("a a a a", "", "a a b b", ""), 2, 8)
    assert found.delta_hat == pytest.approx(np.sqrt(2 - 2 * 0.9487), abs=1e-3)


# Windows of four words. L0 takes "x y" (2 words). L1 takes the second window of equal words (4). L1 first leaves
# nothing for L0; L0 first fragments that window, so that L1 finds nothing.
FRAGMENTED = ["x y\np q", "x y\np q"]


def test_equal_text_is_taken_once_whichever_layer_comes_first() -> None:
    orders = layer_orders(FRAGMENTED, LetterCounts(), [0.9])[0.9]
    assert (orders.observation_tokens, orders.windows, orders.dropped_windows) == (8, 2, 1)
    assert (orders.l0, orders.l1, orders.l1_then_l0, orders.l0_then_l1) == (0.5, 0.5, 0.5, 0.5)
    assert orders.independence_estimate == 0.75


def test_l0_first_fragments_the_windows_that_l1_would_match() -> None:
    orders = layer_orders(["a a a\nb", "a a c\nb"], LetterCounts(), [0.8])[0.8]
    # L1 alone: cos of (3, 1, 0) and (2, 1, 1) is .904, so the second window goes: 4 of 8 words. L0 alone: the last
    # "b". Behind L0 the second text is "a a c", cos of (3, 1, 0) and (2, 0, 1) is .849: it still goes, with 3 words.
    assert (orders.l0_tokens, orders.l1_tokens, orders.l0_after_l1_tokens, orders.l1_after_l0_tokens) == (1, 4, 0, 3)
    strict = layer_orders(["a a a\nb", "a a c\nb"], LetterCounts(), [0.88])[0.88]
    assert (strict.l1_then_l0, strict.l0_then_l1) == (0.5, 0.125)


def test_l0_takes_what_l1_leaves() -> None:
    orders = layer_orders(["a a\nb b", "c c\nb b"], LetterCounts(), [0.99])[0.99]
    assert (orders.l1_tokens, orders.l0_after_l1_tokens, orders.l1_then_l0) == (0, 2, 0.25)


def test_a_sweep_encodes_each_window_once_and_says_what_each_threshold_says_alone() -> None:
    encoder = LetterCounts()
    texts = ["a a a\nb", "a a c\nb", "a a a\nb", "z z z z y y"]
    thresholds = (0.8, 0.88, 0.99)
    swept = layer_orders(texts, encoder, thresholds)
    assert len(encoder.encoded) == len(set(encoder.encoded))
    assert swept == {t: layer_orders(texts, LetterCounts(), [t])[t] for t in thresholds}


def test_runs_are_summed_and_the_largest_distance_stays() -> None:
    one = LayerOrders(100, 5, 1, 10, 20, 5, 4, 1, 0, 0.3)
    two = LayerOrders(100, 5, 2, 10, 20, 15, 6, 0, 1, 0.2)
    both = one + two
    assert both == LayerOrders(200, 10, 3, 20, 40, 20, 10, 1, 1, 0.3)
    assert (both.l0, both.l1, both.l1_net) == (0.1, 0.2, -0.01)  # stubs of 14 tokens: 40 - 42
    assert (both.l1_then_l0, both.l1_then_l0_net) == (0.3, 0.09)
    assert (both.l0_then_l1, both.l0_then_l1_net) == (0.15, 0.08)
    assert both.independence_estimate == pytest.approx(0.28)


LINE = st.lists(st.sampled_from("abcd"), max_size=5).map(" ".join)
TEXTS = st.lists(st.lists(LINE, max_size=6).map("\n".join), max_size=4)


@settings(deadline=None)
@given(TEXTS, st.sampled_from([0.7, 0.9, 0.99, 1.0]))
def test_tokens_are_conserved_by_every_layer(texts: list[str], t: float) -> None:
    encoder = LetterCounts()
    pieces = cut(texts, encoder)
    assert ["".join(piece.text for piece in text) for text in pieces] == texts
    left, removed = exact_layer(texts, words)
    assert sum(map(words, texts)) == removed + sum(map(words, left))
    near = near_layer(pieces, encoder.encode, encoder.dimension, t)
    assert sum(map(words, texts)) == near.removed_tokens + sum(map(words, near.left))
    assert near.delta_hat <= np.sqrt(2 - 2 * t) + 1e-12


def test_a_recorded_run_comes_out_as_it_was_measured_before_this_module(six_runs: list[Run], encoder: Encoder) -> None:
    run = next(run for run in six_runs if run.source == "swesmith_samples")
    orders = layer_orders(observation_texts(run.messages), encoder, [0.95])[0.95]
    assert (orders.observation_tokens, orders.windows, orders.dropped_windows) == (8_119, 25, 1)
    assert (orders.l0_tokens, orders.l1_tokens, orders.l0_after_l1_tokens) == (688, 50, 659)
    assert orders.delta_hat == pytest.approx(0.161423, abs=1e-5)
