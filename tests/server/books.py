"""What a server with the plugin says of itself that no request, however odd, may change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True, slots=True)
class Books:
    """What the server's status says that a request, however odd, must not change, and what it holds."""

    processes: tuple[int, int | None, int]
    failed_open: float
    defects: float
    memo_bytes: int
    store_bytes: int
    store_cap_bytes: int


def books(client: httpx.Client) -> Books:
    """What the server's books say now."""
    status: dict[str, Any] = client.get("/v1/lam/status").raise_for_status().json()
    return Books(
        processes=(status["process"], status["encoder"]["process"], status["encoder"]["restarts"]),
        failed_open=sum(number for name, number in status["requests"].items() if "/failed_open/" in name),
        defects=status["prefix_breaks"]["defect"],
        memo_bytes=status["memo_bytes"],
        store_bytes=status["store_bytes"],
        store_cap_bytes=status["store"]["max_bytes"],
    )
