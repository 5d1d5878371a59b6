"""What the index of every run takes where it is kept: streams, error bytes, the table of windows and segment names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lam_vllm import Compactor
from lam_vllm.config import make_config
from lam_vllm.encoders import Encoder
from lam_vllm.encoders.base import traits_of
from lam_vllm.evaluation.corpus import Run
from lam_vllm.index import Completer, EncodedAs, IndexShelf, PrefixWindows, index_eps
from lam_vllm.stores.base import Row
from lam_vllm.stores.memory import MemoryRows

FAR_MORE = 10**9


class CountedRows(MemoryRows):
    """Rows that count the bytes of the values put into them."""

    def __init__(self) -> None:
        super().__init__(FAR_MORE, FAR_MORE)
        self.value_bytes = 0

    def put_many(self, rows: Sequence[Row]) -> None:
        self.value_bytes += sum(len(row.value) for row in rows)
        super().put_many(rows)


def kept_indexes(runs: Iterable[Run], encoder: Encoder) -> dict[str, Any]:
    """The indexes of whole runs under profile `paper`: fp32 bytes of all windows over the bytes kept, and charged."""
    eps = index_eps(traits_of(encoder).max_abs, encoder.dimension)
    store = CountedRows()
    shelf = IndexShelf(store, bytes(16), EncodedAs(encoder.fingerprint, encoder.dimension, eps), _fail)
    compactor = Compactor(make_config({"profile": "paper", "max_windows": 100_000}), _tokens, encoder)
    completer, prefixes = Completer(encoder), list[PrefixWindows]()
    for run in runs:
        compactor.compact(run.messages, salt=run.id, keep=prefixes.append)
        prefixes[-1] = completer.complete(run.id, prefixes[-1])
        shelf.put(run.id, prefixes[-1])
    windows, retained = sum(len(kept.windows) for kept in prefixes), sum(len(kept.rows) for kept in prefixes)
    fp32_bytes = 4 * encoder.dimension * windows
    return {
        "eps": eps,
        "windows": windows,
        "retained": retained,
        "kept_bytes": store.value_bytes,
        "composite_kept": fp32_bytes / store.value_bytes,
        "composite_charged": fp32_bytes / store.nbytes,
    }


def _tokens(text: str) -> int:
    return max(1, len(text) // 4)  # prices of stubs, which decide nothing under this profile


def _fail(_: object) -> None:
    raise AssertionError("nothing is read")
