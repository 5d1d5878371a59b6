"""The basis of a pruned search: how one is made, and what is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lam_vllm.encoders.profile import read_profile
from lam_vllm.errors import InputFileError
from lam_vllm.search.basis import principal_basis, read_basis, write_basis
from tests.search.made import some_basis, unit


def test_the_directions_are_those_in_which_the_rows_are_longest() -> None:
    axes = np.array([[3.0, 0, 0], [0, 2.0, 0], [0, 0, 1.0]])
    turned = axes @ np.array([[0, 0, 1.0], [1, 0, 0], [0, 1, 0]])
    assert np.abs(principal_basis(turned.astype(np.float32))).round(6).tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
    many = principal_basis(unit(np.random.default_rng(1).standard_normal((9, 100))))
    assert many.shape == (64, 100)
    assert np.allclose(many @ many.T, np.eye(64), atol=1e-6)


def test_a_basis_is_read_in_order_and_freed_of_rounding(tmp_path: Path) -> None:
    path = tmp_path / "basis.npy"
    basis = some_basis(3, 20, 50)
    write_basis(basis.astype(np.float32), path)
    assert list(tmp_path.iterdir()) == [path]
    read = read_basis(path, 50)
    assert np.abs(read @ read.T - np.eye(20)).max() < 1e-14
    assert np.abs(np.abs(np.einsum("kd,kd->k", read, basis)) - 1).max() < 1e-6


def test_the_shipped_basis_is_one_of_its_encoder() -> None:
    path = read_profile("minilm").basis
    assert path is not None
    assert read_basis(path, 384).shape == (64, 384)
    assert read_profile("bge-base").basis is None


BAD: dict[str, tuple[Any, str]] = {
    "another dimension": (some_basis(1, 8, 32), "8 rows of 32 numbers; allowed: 1 to 64 rows of 64 numbers"),
    "too many rows": (np.ones((65, 64)), "65 rows of 64 numbers"),
    "no rows": (np.ones((0, 64)), "0 rows of 64 numbers"),
    "a vector": (np.ones(64), "expected a matrix of floating-point numbers"),
    "integers": (np.eye(64, dtype=np.int64), "expected a matrix of floating-point numbers"),
    "not of unit length": (0.99 * np.eye(8, 64), "not orthonormal"),
    "not at right angles": (np.vstack([np.eye(8, 64), np.full((1, 64), 0.125)]), "not orthonormal"),
    "not a number": (np.full((1, 64), np.nan), "not orthonormal"),
    "infinite": (np.full((1, 64), np.inf), "not orthonormal"),
}


@pytest.mark.parametrize(("array", "why"), BAD.values(), ids=BAD)
def test_what_is_no_basis_of_the_encoder_is_named(array: Any, why: str, tmp_path: Path) -> None:
    np.save(tmp_path / "bad.npy", array)
    with pytest.raises(InputFileError, match=rf"bad\.npy: not a basis.*{why}"):
        read_basis(tmp_path / "bad.npy", 64)


def test_a_basis_that_cannot_be_written_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken.npy").mkdir()
    for path in (tmp_path / "taken.npy", tmp_path / "nowhere" / "basis.npy"):
        with pytest.raises(InputFileError, match=rf"{path.name}: cannot be written: "):
            write_basis(np.eye(2, dtype=np.float32), path)
    assert [path.name for path in tmp_path.iterdir()] == ["taken.npy"]


def test_a_file_that_is_no_array_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.npy").write_text("1 0\n0 1\n")
    (tmp_path / "empty.npy").write_bytes(b"")
    np.save(tmp_path / "objects.npy", np.array([{}, {}]), allow_pickle=True)
    np.savez(tmp_path / "several.npz", np.eye(64))
    (tmp_path / "folder.npy").mkdir()
    for name, why in {
        "text.npy": "not an array in numpy's format",
        "empty.npy": "not an array in numpy's format",
        "objects.npy": "not an array in numpy's format",
        "several.npz": "not a basis: expected a matrix",
        "folder.npy": "cannot be read: Is a directory",
        "none.npy": "cannot be read: No such file",
    }.items():
        with pytest.raises(InputFileError, match=f"{name}: {why}"):
            read_basis(tmp_path / name, 64)
