"""What has to end with the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def lifespan(app: Any) -> AsyncIterator[None]:
    """Ends threads and the worker process when the server has answered its last request.

    Python waits at its exit for every thread of a pool, and those may still wait for work that no client waits for.
    """
    yield
    service = getattr(app.state, "lam", None)  # a server that did not come up has none
    if service is not None:
        await asyncio.to_thread(service.close)
