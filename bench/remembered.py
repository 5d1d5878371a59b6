"""The encoder of the benchmarks: each text is encoded once, and kept in the system's folder for temporary files."""

from __future__ import annotations

import tempfile
from pathlib import Path

from lam_vllm.encoders import Encoder
from lam_vllm.evaluation import remembered

FILE = Path(tempfile.gettempdir()) / "lam_vllm_bench_embeddings.sqlite3"


class RememberedEncoder(remembered.RememberedEncoder):
    """The same encoder over the file that all benchmarks share."""

    def __init__(self, encoder: Encoder, path: Path = FILE) -> None:
        super().__init__(encoder, path)
