"""The torch settings under which an embedding is canonical. torch keeps them per process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_lock = Lock()
_inside = 0
_before: tuple[int, str] = (1, "highest")


@contextmanager
def canonical_torch() -> Iterator[None]:
    """One thread an operation and full fp32 products while anybody is inside: both change the bits.

    Threads may be inside together. The last one to leave puts back what the first one found; a thread that left before
    it keeps one thread an operation for itself.
    """
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    import torch

    global _inside, _before  # noqa: PLW0603 - as global as what they describe
    with _lock:
        if _inside == 0:
            _before = torch.get_num_threads(), torch.get_float32_matmul_precision()
            torch.set_float32_matmul_precision("highest")
        _inside += 1
        torch.set_num_threads(1)  # OpenMP keeps the number for each thread that asks


def _leave() -> None:
    import torch

    global _inside  # noqa: PLW0603
    with _lock:
        _inside -= 1
        if _inside == 0:
            torch.set_num_threads(_before[0])
            torch.set_float32_matmul_precision(_before[1])
