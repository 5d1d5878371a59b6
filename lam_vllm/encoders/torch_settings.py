"""The torch settings under which an embedding is canonical. torch keeps them per process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock

_lock = Lock()
_inside = 0


@dataclass(frozen=True, slots=True)
class _Found:
    """What the first one to enter found. Those of a GPU are None until somebody changes them."""

    threads: int
    products: str
    deterministic: tuple[bool, bool] | None = None
    convolutions_tf32: bool | None = None


_found = _Found(1, "highest")


@contextmanager
def canonical_torch(*, cuda: bool = False) -> Iterator[None]:
    """One thread an operation and full fp32 products while anybody is inside: both change the bits.

    With `cuda` also no TF32 in convolutions, and kernels that add in one order, where torch has one: it warns where it
    has none. Threads may be inside together. The last one to leave puts back what the first one found; a thread that
    left before it keeps one thread an operation for itself.
    """
    _enter(cuda)
    try:
        yield
    finally:
        _leave()


def _enter(cuda: bool) -> None:
    import torch

    global _inside, _found  # noqa: PLW0603 - as global as what they describe
    with _lock:
        if _inside == 0:
            _found = _Found(torch.get_num_threads(), torch.get_float32_matmul_precision())
            torch.set_float32_matmul_precision("highest")
        if cuda and _found.deterministic is None:
            _found = _set_for_cuda(_found)
        _inside += 1
        torch.set_num_threads(1)  # OpenMP keeps the number for each thread that asks


def _set_for_cuda(found: _Found) -> _Found:
    import torch

    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    tf32 = bool(torch.backends.cudnn.allow_tf32)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.allow_tf32 = False
    return _Found(found.threads, found.products, before, tf32)


def _leave() -> None:
    import torch

    global _inside  # noqa: PLW0603
    with _lock:
        _inside -= 1
        if _inside > 0:
            return
        torch.set_num_threads(_found.threads)
        if _found.deterministic is not None:
            enabled, warn_only = _found.deterministic
            torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
            torch.backends.cudnn.allow_tf32 = _found.convolutions_tf32
        torch.set_float32_matmul_precision(_found.products)
