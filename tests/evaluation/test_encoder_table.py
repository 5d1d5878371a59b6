"""Removal under one encoder by hand, the t that matches another's, and the encoders made from the packaged one."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lam_vllm.bound import delta_of
from lam_vllm.encoders import load_encoder
from lam_vllm.encoders.base import Encoder
from lam_vllm.evaluation.encoder_variants import StaticEncoder, packaged_folder, with_cls_pooling
from lam_vllm.evaluation.measures.packing import greedy, l2_matrix
from lam_vllm.evaluation.study.encoder_table import LayerTokens, layer_tokens, matching_threshold
from lam_vllm.types import Embedding

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "green", "blue", "old", "new")


class TwoWordWindows:
    """An `Encoder` of whitespace words, two a window, whose vector says how many letters a text has."""

    fingerprint, name, dimension, window_tokens, threshold_cos = "", "words", 2, 2, 0.95

    def token_offsets(self, text: str) -> list[tuple[int, int]]:
        return [found.span() for found in re.finditer(r"\S+", text)]

    def encode(self, text: str) -> Embedding:
        angle = 0.1 * sum(letter.isalpha() for letter in text)
        return np.array([np.cos(angle), np.sin(angle)], dtype=np.float32)


def test_both_layers_counted_by_hand() -> None:
    texts = ["a b\ncc d\n", "e f\ncc d\n", "cc d\n"]  # windows of 2, 3 letters, twice, and of 3: 0.1 apart
    found = layer_tokens(texts, TwoWordWindows(), threshold_cos=0.999)
    assert (found.observation_tokens, found.windows) == (10, 5)
    assert (found.dropped, found.l1_tokens, found.delta_hat) == (3, 6, 0)
    assert found.l0_after_l1_tokens == 0  # only empty lines repeat


def test_the_second_layer_takes_lines_that_windows_do_not_hold_alone() -> None:
    texts = ["a\nbb\n", "a\ncccc dddd\n"]
    found = layer_tokens(texts, TwoWordWindows(), threshold_cos=0.999)
    assert (found.dropped, found.l1_tokens, found.l0_after_l1_tokens) == (0, 0, 1)


def test_a_wider_bound_drops_more_and_says_how_far() -> None:
    found = layer_tokens(["a b\ncc d\n"], TwoWordWindows(), threshold_cos=0.95)
    assert (found.dropped, found.l1_tokens) == (1, 2)
    assert found.delta_hat == pytest.approx(2 * np.sin(0.05), abs=1e-6)


def test_shares_charge_fourteen_tokens_a_stub() -> None:
    total = LayerTokens(100, 4, 1, 30, 0, 0.1) + LayerTokens(100, 3, 1, 20, 10, 0.05)
    assert total == LayerTokens(200, 7, 2, 50, 10, 0.1)
    assert total.shares() == {"l1_gross": 0.25, "l1_net": 0.11, "l1_l0_gross": 0.3, "l1_l0_net": 0.16}
    assert LayerTokens().shares()["l1_net"] == 0


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), share=st.floats(0, 1))
def test_at_the_matching_threshold_no_more_is_removed_and_just_below_it_more_is(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((12, 4))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    runs = [(rng.integers(1, 9, 12), l2_matrix(rows))]
    wanted = int(share * runs[0][0].sum())
    t = matching_threshold(runs, wanted)

    def removed(at: float) -> int:
        return int(runs[0][0][~greedy(runs[0][1], delta_of(at)).retained].sum())

    assert removed(t) <= wanted
    assert t < 2**-14 or removed(t - 2**-15) > wanted


def test_cls_pooling_is_another_encoder_with_the_same_windows(encoder: Encoder, tmp_path: Path) -> None:
    cls = load_encoder(str(with_cls_pooling(packaged_folder(), tmp_path / "cls")))
    text = "def area(w, h):\n    return w * h"
    assert cls.fingerprint != encoder.fingerprint
    assert cls.token_offsets(text) == encoder.token_offsets(text)
    assert (cls.window_tokens, cls.dimension) == (encoder.window_tokens, encoder.dimension)
    assert float(cls.encode(text) @ encoder.encode(text)) < 0.99
    with pytest.raises(FileExistsError):
        with_cls_pooling(packaged_folder(), tmp_path / "cls")


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of ten words and random weights, so that distilling takes a moment."""
    import skeletoken  # noqa: F401 - of the extra `eval`: model2vec distils with it
    from transformers import BertConfig, BertModel, BertTokenizerFast

    folder = tmp_path_factory.mktemp("tiny")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(vocab_size=len(WORDS), **sizes)).save_pretrained(folder)
    BertTokenizerFast(vocab={word: place for place, word in enumerate(WORDS)}).save_pretrained(folder)
    return folder


def test_a_static_encoder_averages_words_whatever_their_order(encoder: Encoder, tiny_model: Path) -> None:
    static = StaticEncoder(encoder, tiny_model)
    vector = static.encode("red green blue")
    assert vector.dtype == np.float32
    assert vector.shape == (static.dimension,)
    assert np.linalg.norm(vector.astype(np.float64)) == pytest.approx(1, abs=1e-6)
    assert static.encode("blue red green") == pytest.approx(vector, abs=1e-6)
    assert abs(static.encode("old new") @ vector) < 0.999
    assert static.token_offsets("red green") == encoder.token_offsets("red green")


def test_texts_without_a_known_word_are_one_unit_vector(encoder: Encoder, tiny_model: Path) -> None:
    static = StaticEncoder(encoder, tiny_model)
    assert (
        static.encode("").tolist() == static.encode("unheard \ud800").tolist() == [1.0] + [0.0] * (static.dimension - 1)
    )
