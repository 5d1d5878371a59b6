"""A recorded run and its embeddings, which the tests of searches share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lam_vllm.encoders import load_encoder
from lam_vllm.evaluation.baselines.windowed import WindowedRun, WindowEmbeddings
from lam_vllm.evaluation.corpus import read_runs
from lam_vllm.evaluation.remembered import RememberedEncoder
from lam_vllm.types import Embedding

CORPUS = Path(__file__).parents[1] / "data/corpus/trajectories.jsonl.xz"


@pytest.fixture(scope="session")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RememberedEncoder]:
    """MiniLM, each window encoded once."""
    remembered = RememberedEncoder(load_encoder("minilm"), tmp_path_factory.mktemp("embeddings") / "kept.sqlite3")
    yield remembered
    remembered.close()


@pytest.fixture(scope="session")
def recorded(minilm: RememberedEncoder) -> tuple[WindowedRun, Embedding]:
    """A run of 43 windows, of which 37 pairs are near and two are the same, and their (43, 384) embeddings."""
    windows = WindowEmbeddings(minilm)
    run = [run for run in read_runs(CORPUS) if run.source == "swesmith_samples"][5]
    return windows.windowed(run), windows.rows(run)
