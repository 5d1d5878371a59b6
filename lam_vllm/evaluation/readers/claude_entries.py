"""One line of a Claude Code log, checked, and the blocks of the message that it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_MARKS = ("sessionId", "uuid", "parentUuid", "leafUuid", "messageId")
_SPEAKERS = ("user", "assistant")


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a log. `blocks` are the content blocks of a message; `role` is None where the line holds none.

    `message_id` is shared by the lines of one answer. `agent` names the subagent of a side chain, where it is logged.
    """

    uuid: str | None
    parent: str | None
    session: str | None
    side_chain: bool
    agent: str | None
    starts_from_summary: bool
    role: str | None
    message_id: str | None
    blocks: tuple[dict[str, Any], ...]

    def values(self, kind: str, key: str) -> set[Any]:
        """What blocks of this kind have under `key`."""
        return {block.get(key) for block in self.blocks if block["type"] == kind}


def is_session_entry(document: Any) -> bool:
    """Whether this is a line of a Claude Code log."""
    typed = isinstance(document, dict) and isinstance(document.get("type"), str) and "messages" not in document
    return typed and any(mark in document for mark in _MARKS)


def session_entry(document: Any) -> Entry:
    """The line as an entry.

    Raises:
        ValueError: it is none, or its message has not the form of one; says what is wrong.
    """
    if not is_session_entry(document):
        raise ValueError("expected an object with a type and an id")
    speaks = document["type"] in _SPEAKERS
    message = document.get("message") if speaks else {}
    if not isinstance(message, dict):
        raise ValueError(f"a line of type {document['type']} without a message")
    agent = document.get("agentId")
    return Entry(
        uuid=document.get("uuid"),
        parent=document.get("parentUuid"),
        session=document.get("sessionId"),
        side_chain=document.get("isSidechain") is True,
        agent=str(agent) if agent else None,
        starts_from_summary=document.get("isCompactSummary") is True,
        role=document["type"] if speaks else None,
        message_id=message.get("id"),
        blocks=_blocks(message.get("content")) if speaks else (),
    )


def _blocks(content: Any) -> tuple[dict[str, Any], ...]:
    if isinstance(content, str):
        return ({"type": "text", "text": content},)
    if not isinstance(content, list) or not all(isinstance(block, dict) and "type" in block for block in content):
        raise ValueError("content is neither a string nor a list of blocks")
    return tuple(content)
