"""Bound violations of connected components, over runs in which a chain drops a window that is far from the first."""

from __future__ import annotations

from lam_vllm.evaluation.baselines.components import ConnectedComponents
from lam_vllm.evaluation.baselines.windowed import WindowEmbeddings
from lam_vllm.evaluation.study.bound_table import bound_table
from tests.core.chats import BagOfWords
from tests.evaluation.baselines.hand_made import run_of

WORDS = [f"word{number}" for number in range(40)]


def changed(words: int) -> str:
    """The 40 words, of which the first are others."""
    return " ".join([f"else{number}" for number in range(words)] + WORDS[words:])


def test_violations_are_counted_over_all_runs() -> None:
    chain = run_of(changed(0), changed(4), changed(8), run_id="chain")
    near = run_of(changed(0), changed(4), run_id="near")
    windows = WindowEmbeddings(BagOfWords())
    (record,) = bound_table([ConnectedComponents(0.88, windows)], [chain, near]).json()
    assert (record["label"], record["dropped"]) == ("components t=0.88", 3)
    assert (record["violations"], record["violating_runs"]) == (1, 1)
