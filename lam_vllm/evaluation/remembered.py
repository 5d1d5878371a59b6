"""An encoder that encodes each text once and keeps the result, and what it took, in a file."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path
from time import process_time

import numpy as np

from lam_vllm.encoders.base import Encoder, EncoderLike
from lam_vllm.types import Embedding

WAIT_SECONDS = 60.0


class RememberedEncoder(EncoderLike):
    """The same encoder, for methods and settings that look at the same texts again and again.

    `spent_seconds` is the CPU time in `encode` so far, `encode_seconds` what it would have been with nothing kept.
    """

    def __init__(self, encoder: Encoder, path: Path) -> None:
        """Opens the file, which several programs may share; its folder must be there."""
        super().__init__(encoder)
        self.spent_seconds = 0.0
        self.encode_seconds = 0.0
        self._encode = encoder.encode
        self._file = sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)
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

    def cpu_seconds(self) -> float:
        """CPU time of this process as it would be with nothing kept: for the difference of two calls."""
        return process_time() - self.spent_seconds + self.encode_seconds

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
