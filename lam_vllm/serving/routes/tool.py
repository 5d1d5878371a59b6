"""GET /v1/lam/tool: a function for the model to look up what a reference names."""

from __future__ import annotations

from typing import Any

from lam_vllm.messages import LOOK_UP_TOOL


async def tool() -> dict[str, Any]:
    """An OpenAI function schema of a look-up tool, for clients that want to offer the model one."""
    integer = {"type": "integer", "minimum": 1}
    return {
        "type": "function",
        "function": {
            "name": LOOK_UP_TOOL,
            "description": "Show again lines of an earlier tool result of this conversation, as they were printed.",
            "parameters": {
                "type": "object",
                "properties": {
                    "result": {**integer, "description": "Which tool result, counted from 1 at the start."},
                    "first_line": {**integer, "description": "First line to show, counted from 1 in that result."},
                    "last_line": {**integer, "description": "Last line to show, included."},
                },
                "required": ["result", "first_line", "last_line"],
                "additionalProperties": False,
            },
        },
    }
