"""A client for many requests, some of them far apart."""

from __future__ import annotations

from collections.abc import Mapping

import httpx

KEEP_SECONDS = 2.0
"""Less than a server keeps an idle connection (5): none is used that it is about to close."""


def steady_client(url: str, headers: Mapping[str, str] | None = None) -> httpx.Client:
    """A client that keeps connections for the next request, and none so long that the server closes it first."""
    limits = httpx.Limits(keepalive_expiry=KEEP_SECONDS)
    return httpx.Client(base_url=url, headers=headers, timeout=120, limits=limits)
