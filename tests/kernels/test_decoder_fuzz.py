"""Bytes that anyone wrote, through the host decoder under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import numpy as np

from lam_vllm.codec.bounded import Values
from lam_vllm.codec.fixed import fixed_body
from tests.codec.matrices import HOSTILE, embeddings
from tests.kernels.builds import SANITIZED, build

COUNT, SEED = 100_000, 20260


def test_a_hundred_thousand_damaged_bodies_give_no_report(tmp_path: Path) -> None:
    program = build(Path(__file__).parent / "fuzz_decoder.cpp", tmp_path / "fuzz", *SANITIZED)
    matrices = [
        embeddings(8, 384),
        embeddings(5, 33),
        np.tile(HOSTILE, (3, 5)),
        np.zeros((6, 64), np.float32),
        embeddings(1, 1),
    ]
    samples = [str(written(tmp_path / f"{place}.body", matrix)) for place, matrix in enumerate(matrices)]
    done = subprocess.run(
        [program, str(COUNT), str(SEED), *samples], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    outcomes = [int(number) for number in done.stdout.split()]
    assert sum(outcomes) == COUNT
    assert min(outcomes) > COUNT // 100, "every outcome is met often"


def written(path: Path, matrix: Values) -> Path:
    path.write_bytes(struct.pack("<II", *matrix.shape) + fixed_body(matrix, 0.0025))
    return path
