"""The store that some settings name."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from lam_vllm.errors import OptionError
from lam_vllm.stores.base import Kind, OnError, Rows, StoreSettings
from lam_vllm.stores.behind import RowsBehind
from lam_vllm.stores.memory import MemoryRows
from lam_vllm.stores.sealed import SealedRows
from lam_vllm.stores.sqlite import SqliteRows


def open_rows(settings: StoreSettings, kind: Kind, key: bytes, on_error: OnError) -> Rows:
    """The rows of this kind, in memory or, sealed under `key` and behind a queue, in a file or on a server.

    One that cannot be reached is no error, neither here nor later: then `on_error` is told.

    Raises:
        MissingExtraError: the client library of the store is not installed.
        OptionError: the client library cannot read the URL.
    """
    if settings.url is None:
        return MemoryRows(settings.max_bytes, settings.retention_seconds)
    try:
        rows = _backend(settings.url, settings, kind)
    except ValueError as error:
        raise OptionError("store_url", settings.label, f"a URL that can be opened ({error})") from None
    return RowsBehind(SealedRows(rows, key, on_error), on_error, label=f"the store {settings.label} of {kind}")


def file_of(url: str) -> Path:
    """The file that `sqlite:///path`, or a path itself, names."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "sqlite" else Path(url)


def _backend(url: str, settings: StoreSettings, kind: Kind) -> Rows:
    if settings.kind == "redis":
        from lam_vllm.stores.redis import RedisRows

        return RedisRows(url, kind, settings.max_bytes, settings.retention_seconds)
    return SqliteRows(file_of(url), kind, settings.max_bytes, settings.retention_seconds)
