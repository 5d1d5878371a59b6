"""Reads bytes from front to end, and never beyond."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lam_vllm.codec.error import CodecError


class Cursor:
    """A place in a buffer, which reading moves on."""

    def __init__(self, data: memoryview) -> None:
        self._rest = data

    def take(self, name: str, size: int) -> memoryview:
        """The next `size` bytes, where they lie.

        Raises:
            CodecError: there are fewer.
        """
        if size > len(self._rest):
            raise CodecError(name, f"{size} bytes", f"at most {len(self._rest)}, which are left")
        part, self._rest = self._rest[:size], self._rest[size:]
        return part

    def array(self, name: str, count: int, dtype: str) -> NDArray[Any]:
        """The next `count` numbers of this little-endian dtype, copied.

        Raises:
            CodecError: there are fewer.
        """
        kind = np.dtype(dtype)
        part = self.take(name, count * kind.itemsize)
        return np.frombuffer(part, kind).astype(kind.newbyteorder("="))

    def rest(self) -> memoryview:
        """All that is left."""
        return self.take("rest", len(self._rest))

    def end(self) -> None:
        """Nothing, if nothing is left.

        Raises:
            CodecError: something is.
        """
        if len(self._rest):
            raise CodecError("body", f"{len(self._rest)} bytes behind its end", "none")
