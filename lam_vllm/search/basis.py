"""The basis of a pruned search: made from embeddings, and read from the file that an encoder's profile names."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lam_vllm.errors import InputFileError
from lam_vllm.search.pruned import PREFIXES
from lam_vllm.types import Embedding

_TOLERANCE = 1e-4
"""How far from orthonormal a file may be: that of float32, whose errors are taken out on reading, and not more."""


def principal_basis(rows: Embedding) -> NDArray[np.float32]:
    """(K, D) orthonormal: the K directions in which the (N, D) rows are longest, longest first; K = 64, or D if less.

    They are the main eigenvectors of the products of the rows. No mean is taken out: what all rows have in common is
    best counted exactly too.
    """
    exact = rows.astype(np.float64)
    _, vectors = np.linalg.eigh(exact.T @ exact)
    directions: NDArray[np.float32] = vectors[:, ::-1].T[: PREFIXES[-1]].astype(np.float32)
    return directions


def read_basis(path: str | Path, dimension: int) -> NDArray[np.float64]:
    """(K, D) orthonormal to the precision of float64: the rows of the .npy file, made so in their order.

    Raises:
        InputFileError: the file cannot be read, or is no array in numpy's format.
        InputFileError: it is not a matrix with 1 to D rows of `dimension` numbers.
        InputFileError: its rows are not orthonormal.
    """
    try:
        with Path(path).open("rb") as file:
            rows = np.load(file, allow_pickle=False)
    except OSError as error:
        raise InputFileError(path, f"cannot be read: {error.strerror or error}") from None
    except (ValueError, EOFError) as error:
        raise InputFileError(path, f"not an array in numpy's format: {error}") from None
    if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.dtype.kind != "f":
        raise InputFileError(path, "not a basis: expected a matrix of floating-point numbers")
    count, found = rows.shape
    if found != dimension or not 1 <= count <= dimension:
        allowed = f"1 to {dimension} rows of {dimension} numbers, the dimension of the encoder"
        raise InputFileError(path, f"not a basis of this encoder: {count} rows of {found} numbers; allowed: {allowed}")
    exact = rows.astype(np.float64)
    farthest = np.abs(exact @ exact.T - np.eye(count)).max()
    if not farthest <= _TOLERANCE:  # false for NaN
        raise InputFileError(path, f"not a basis: its rows are not orthonormal, by {farthest:.1e}")
    orthonormal: NDArray[np.float64] = np.linalg.qr(exact.T)[0].T
    return orthonormal


def write_basis(basis: NDArray[np.float32], path: Path) -> None:
    """Writes the (K, D) basis whole or not at all, into a folder that is there; `read_basis` reads it.

    Raises:
        InputFileError: the file cannot be written.
    """
    draft = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        try:
            with draft.open("wb") as file:
                np.save(file, basis, allow_pickle=False)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise InputFileError(path, f"cannot be written: {error.strerror or error}") from None
