"""A chat with a repeat, and what reaches the renderer of it."""

from __future__ import annotations

import asyncio
from typing import Any

from lam_vllm.serving.box import RequestBox
from tests.serving.fakes import TEXT, Server, agent_messages

REPEATED = agent_messages(TEXT, TEXT)


def run(server: Server, messages: Any, box: RequestBox | None = None, **fields: Any) -> Any:
    return asyncio.run(server.ask(messages, box, **fields))
