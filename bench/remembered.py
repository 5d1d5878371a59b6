"""An encoder that encodes each text once and keeps the result, and what it took, in a file."""

from __future__ import annotations

import hashlib
import sqlite3
import tempfile
from pathlib import Path
from time import process_time

import numpy as np

from lam_vllm.encoders import Encoder
from lam_vllm.types import Embedding

FILE = Path(tempfile.gettempdir()) / "lam_vllm_bench_embeddings.sqlite3"


class RememberedEncoder:
    """The same encoder. `spent_seconds` is CPU time in `encode` so far, `encode_seconds` what it is with no file."""

    def __init__(self, encoder: Encoder, path: Path = FILE) -> None:
        self.fingerprint = encoder.fingerprint
        self.name = encoder.name
        self.dimension = encoder.dimension
        self.window_tokens = encoder.window_tokens
        self.threshold_cos = encoder.threshold_cos
        self.token_offsets = encoder.token_offsets
        self.spent_seconds = 0.0
        self.encode_seconds = 0.0
        self._encode = encoder.encode
        self._file = sqlite3.connect(path, isolation_level=None)
        self._file.execute("CREATE TABLE IF NOT EXISTS embedding (key BLOB PRIMARY KEY, seconds REAL, vector BLOB)")

    def encode(self, text: str) -> Embedding:
        """The embedding of `text`; see `Encoder`."""
        began = process_time()
        key = hashlib.blake2b(f"{self.fingerprint}\0{text}".encode(errors="surrogatepass"), digest_size=16).digest()
        row = self._file.execute("SELECT seconds, vector FROM embedding WHERE key = ?", (key,)).fetchone()
        if row is None:
            vector = self._encode(text)
            row = (process_time() - began, vector.tobytes())
            self._file.execute("INSERT OR REPLACE INTO embedding VALUES (?, ?, ?)", (key, *row))
        self.encode_seconds += row[0]
        self.spent_seconds += process_time() - began
        return np.frombuffer(row[1], dtype=np.float32).copy()
