"""Chat messages as OpenAI clients keep them: a list, or an object that has them under `messages`."""

from __future__ import annotations

import json
from typing import Any


def read_chat(document: Any) -> Any:
    """The document's messages, None where it has none; whether they are messages is not yet known.

    Data sets often keep `messages` as JSON within a string.

    Raises:
        ValueError: that string is not JSON.
    """
    messages = document.get("messages") if isinstance(document, dict) else document
    return json.loads(messages) if isinstance(messages, str) else messages
