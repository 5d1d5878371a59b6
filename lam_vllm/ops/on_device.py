"""Array operations on a device beside the host: what was made there is used there, and copied to the host once."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from lam_vllm.ops.arrays import Rows
from lam_vllm.ops.launches import Bound, FixedBlocks

MOST_TWINS = 65_536
"""Rows whose device copy is kept; later ones are sent there when they are needed. 96 MiB where D is 384."""


class Twins:
    """Where host arrays lie on the device, by identity: an entry goes with its host array, which nobody may change."""

    def __init__(self, most: int = MOST_TWINS) -> None:
        self._most = most
        self._there: dict[int, tuple[ref[NDArray[Any]], Any]] = {}

    def __len__(self) -> int:
        return len(self._there)

    def keep(self, host: Rows, there: Any) -> None:
        """Remember that `there` is `host` on the device, unless there are too many such pairs."""
        if len(self._there) < self._most:
            key = id(host)
            # The weak reference tells of the array's end before its memory, and with it the id, is used again.
            self._there[key] = (ref(host, lambda _gone: self._there.pop(key, None)), there)

    def find(self, host: Rows) -> Any | None:
        """The device array of `host`, or of the one that it is a whole view of; None where there is none."""
        for known in (host, host.base):
            entry = self._there.get(id(known))
            if entry is not None and (kept := entry[0]()) is known and kept is not None and _same(host, kept):
                return entry[1].reshape(host.shape)
        return None


class DeviceArrays:
    """`Arrays` of the device of an array module such as CuPy, by `operations`, which has the functions of `ops.cuda`.

    `to_host` gives a numpy copy of a device array. With numpy and `ops.reference` the device is the host itself.
    """

    def __init__(
        self, module: ModuleType, operations: ModuleType, to_host: Callable[[Any], Any], most_twins: int = MOST_TWINS
    ) -> None:
        self._module = module
        self._operations = operations
        self._host = to_host
        self._twins = Twins(most_twins)

    def received(self, tensor: Any) -> Rows:
        """(N, D) host copy of a float32 tensor, which stays on the device and is used there in place of the copy.

        It is handed over by DLPack: its memory is shared, not copied. Nobody may write to the tensor afterwards.
        """
        there = self._module.from_dlpack(tensor)
        rows: Rows = self._host(there)
        self._twins.keep(rows, there)
        return rows

    def alone(self, rows: Rows, place: int) -> Rows:
        """A copy of one row, here and there; see `Arrays`."""
        row: Rows = rows[place].copy()
        there = self._twins.find(rows)
        if there is not None:
            self._twins.keep(row, there[place].copy())
        return row

    def l2_distances(self, rows: Rows, query: Rows) -> NDArray[np.float64]:
        """Distances, computed on the device; see `Arrays`."""
        distances: NDArray[np.float64] = self._host(self._operations.l2_distances(self.there(rows), self.there(query)))
        return distances

    def band_digests(self, rows: Rows, eps: float, width: int) -> NDArray[np.uint64]:
        """Digests, computed on the device; see `Arrays`."""
        digests: NDArray[np.uint64] = self._host(self._operations.band_digests(self.there(rows), eps, width))
        return digests

    def encode_fixed(self, rows: Rows, bound: Bound) -> FixedBlocks:
        """The blocks of (N, D) rows, made on the device, as numpy arrays; see `launches.encode_fixed`."""
        blocks = self._operations.encode_fixed(self.there(rows), bound)
        return FixedBlocks(self._host(blocks.widths), self._host(blocks.words))

    def there(self, host: Rows) -> Any:
        """The array on the device: the one that it was copied from, else a copy."""
        found = self._twins.find(host)
        return self._module.asarray(np.ascontiguousarray(host)) if found is None else found


def _same(view: Rows, whole: NDArray[Any]) -> bool:
    """Whether the view shows every element of `whole`, in its order: `row[None]` does, `row[::-1]` does not."""
    return bool(view.size == whole.size and view.flags.c_contiguous and view.ctypes.data == whole.ctypes.data)
