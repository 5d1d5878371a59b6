"""Recorded runs as the conversations that clients of the three APIs send."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lam_vllm.evaluation.corpus import find_run
from lam_vllm.evaluation.live.dialects import dialect
from lam_vllm.types import Message

CORPUS = Path(__file__).parents[1] / "data/corpus/trajectories.jsonl.xz"
RUN = "mini_gemini3_verified/sympy__sympy-13878"
FIRST = 156
"""From here the agent prints the same files again within few thousand tokens, which a CPU prefills in a second."""
FITTING_MESSAGES = 12
"""So many messages from there fit into the tests' context without the plugin."""
TOO_LONG_MESSAGES = 18
"""So many fit only with it."""

TOOLS = [{"type": "function", "function": {"name": "shell", "parameters": {"type": "object", "properties": {}}}}]


def recorded(messages: int = FITTING_MESSAGES) -> list[Message]:
    """A stretch of `RUN`, each result with a call that asked for it, ids made from positions."""
    stretch = find_run(CORPUS, RUN).messages[FIRST : FIRST + messages]
    return with_calls([{"role": "user", "content": "Please solve the issue."}, *stretch])


def with_calls(messages: list[Message]) -> list[Message]:
    """The conversation with one call in the assistant message before each stretch of results, per result."""
    linked: list[Any] = [dict(message) for message in messages]
    asking: dict[str, Any] = {}
    for place, message in enumerate(linked):
        if message["role"] == "assistant":
            asking = message
        if message["role"] == "tool":
            call = {"id": f"call_{place}", "type": "function", "function": {"name": "shell", "arguments": "{}"}}
            asking["tool_calls"] = [*asking.get("tool_calls", []), call]
            message["tool_call_id"] = call["id"]
    return linked


def by_user(user: object, messages: list[Message]) -> list[Message]:
    """The conversation of one of several users, who get the same tool output."""
    return [{"role": "user", "content": f"I am user {user}."}, *messages[1:]]


def in_parallel(messages: list[Message]) -> list[Message]:
    """The conversation with the results of two assistant messages in a row as parallel calls of the first."""
    kept: list[Message] = []
    spoken = 0
    for message in messages:
        spoken += message["role"] == "assistant"
        if message["role"] != "assistant" or spoken % 2:
            kept.append({"role": message["role"], "content": message["content"]})
    return with_calls(kept)


def turns(messages: list[Message]) -> list[list[Message]]:
    """What the client sends, turn by turn: everything before each assistant message, and all of it."""
    ends = [place for place, message in enumerate(messages) if message["role"] == "assistant" and place > 0]
    wanted = [*ends, len(messages)] if messages[-1]["role"] != "assistant" else ends
    return [messages[:end] for end in wanted]


def body(api: str, messages: list[Message]) -> dict[str, Any]:
    """The fields of a request of this API, the model's name and limits aside."""
    fields = dialect(api).body(messages, 1)
    return {key: value for key, value in fields.items() if key not in ("stream_options", "store")}


def common_prefix(first: list[int], second: list[int]) -> int:
    """Tokens that both begin with."""
    return next(
        (place for place, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )
