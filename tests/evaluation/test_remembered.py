"""An encoder that remembers: the same bits, and the time as if nothing were remembered."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lam_vllm.encoders.base import Encoder
from lam_vllm.evaluation.remembered import RememberedEncoder


def test_what_is_remembered_is_the_same_and_costs_what_it_cost_first(tmp_path: Path, encoder: Encoder) -> None:
    first = RememberedEncoder(encoder, tmp_path / "kept.sqlite3")
    vector = first.encode("def connect(host, port):")
    cost = first.encode_seconds
    assert np.array_equal(vector, encoder.encode("def connect(host, port):")) and cost > 0
    first.close()
    again = RememberedEncoder(encoder, tmp_path / "kept.sqlite3")
    before = again.cpu_seconds()
    assert np.array_equal(again.encode("def connect(host, port):"), vector)
    assert again.encode_seconds == cost and again.cpu_seconds() - before >= cost
    again.close()


def test_other_texts_are_encoded(tmp_path: Path, encoder: Encoder) -> None:
    remembered = RememberedEncoder(encoder, tmp_path / "kept.sqlite3")
    assert not np.array_equal(remembered.encode("one"), remembered.encode("two\ud800"))
    remembered.close()
