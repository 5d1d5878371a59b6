"""Conversations as an agent's client sends them, and what of them a compaction left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lam_vllm import Compaction, Compactor
from lam_vllm.types import Message

MODELS = Path(__file__).parents[2] / ".models"
Make = Callable[..., Compactor]
"""Builds a compactor from options of `CompactorConfig`."""
Answer = Callable[[Sequence[Message], Sequence[str]], list[str]]
"""Answers questions, each asked right after the messages."""

MODULE = "\n".join(f"value_{n} = compute(first_argument, argument_{n}, timeout={n * 3})" for n in range(24))
"""A file of distinct lines, worth a reference."""
LINES = MODULE.split("\n")
OTHER = "\n".join(
    f"{name}: checked and found in good order at the last visit" for name in ("mast", "hull", "keel", "sail", "rope")
)
FOLDER = "/srv/pilot/workspace/harbour/contrib/"


def agent(*results: Any, tool: str = "read") -> list[dict[str, Any]]:
    """System, user, then a call and its result for each of `results` (text or parts)."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You repair programs."},
        {"role": "user", "content": "Please look into it."},
    ]
    for turn, result in enumerate(results):
        call = {
            "id": f"call_{turn}",
            "type": "function",
            "function": {"name": tool, "arguments": f'{{"turn": {turn}}}'},
        }
        messages.append({"role": "assistant", "content": f"Step {turn}.", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call_{turn}", "content": result})
    return messages


def emitted(compaction: Compaction) -> list[Any]:
    """Contents of the tool results as they would be rendered."""
    return [message["content"] for message in compaction.messages if message["role"] == "tool"]


def numbered(lines: Sequence[str], first: int = 1) -> str:
    """Lines as a file viewer prints them."""
    return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(lines, first))


def listing(*names: str, folder: str = FOLDER) -> str:
    """Three files in each of the folders of these names: with `directory_aliases` `folder` gets a short name."""
    return "\n".join(f"{folder}{name}/{file}.py" for name in names for file in ("apps", "forms", "views"))


def ledger(raised: int, accounts: int = 16) -> str:
    """Rows in pairs, of which every third balance moves with `raised`: no run is worth a reference of its own."""
    rows = []
    for n in range(accounts):
        rows += [f"account {n:02} of the harbour office", f"    balance {500 + n * n + (n % 3 == 0) * raised} crowns"]
    return "\n".join(rows)
