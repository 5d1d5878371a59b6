"""Session logs of Claude Code: one JSON object a line, one file a session, a line for each block of a message.

A log holds more than one prompt: subagents (side chains) have prompts of their own, and a conversation that was
compacted goes on from its summary. Each of them is a run, since text of one is not in the prompt of another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from lam_vllm.errors import InputFileError
from lam_vllm.evaluation.readers.claude_entries import Entry, session_entry
from lam_vllm.evaluation.readers.claude_messages import chat_messages
from lam_vllm.evaluation.readers.run import Run, make_run

SOURCE = "claude-code"


def read_session(
    path: Path, documents: Iterable[tuple[int, Any]], on_skip: Callable[[InputFileError], None]
) -> Iterator[Run]:
    """The runs of one log: the session, what followed each of its compactions (`#2`), its subagents (`/agent`).

    Lines that are no entries go to `on_skip`. Turns that the user took back are left out.

    Raises:
        InputFileError: there is no message in the file.
    """
    entries = _entries(path, documents, on_skip)
    session = next((entry.session for entry in reversed(entries) if entry.session), path.name)
    if not any(entry.role for entry in entries):
        raise InputFileError(path, "a Claude Code log without messages")
    for name, conversation in _conversations(entries).items():
        messages = chat_messages(_standing(conversation))
        if messages:
            yield make_run(path, 1, messages, {"id": f"{session}{name}"}, SOURCE)


def _entries(
    path: Path, documents: Iterable[tuple[int, Any]], on_skip: Callable[[InputFileError], None]
) -> list[Entry]:
    """The lines that are entries, each once: a resumed session repeats those of the one before."""
    entries: list[Entry] = []
    seen: set[str] = set()
    for line, document in documents:
        try:
            entry = session_entry(document)
        except ValueError as error:
            on_skip(InputFileError(path, f"not a line of a Claude Code log: {error}", line))
            continue
        if entry.uuid is None or entry.uuid not in seen:
            entries.append(entry)
        if entry.uuid is not None:
            seen.add(entry.uuid)
    return entries


def _conversations(entries: list[Entry]) -> dict[str, list[Entry]]:
    """The entries of each prompt, by what its name adds to the session's."""
    conversations: dict[str, list[Entry]] = {}
    side_chains: dict[str | None, str] = {}  # by the id of an entry
    name, prompts = "", 1
    for entry in entries:
        if entry.side_chain:
            chain = side_chains.get(entry.parent) or entry.agent or str(entry.uuid)
            side_chains[entry.uuid] = chain
            conversations.setdefault(f"/{chain}", []).append(entry)
        else:
            if entry.starts_from_summary:
                prompts += 1
                name = f"#{prompts}"
            conversations.setdefault(name, []).append(entry)
    return conversations


def _standing(entries: list[Entry]) -> list[Entry]:
    """The messages that lead to the last one: an edited prompt hangs where the one that it replaces hung.

    The blocks of one answer, and the results of its calls, are a chain with branches; all of them stand.
    """
    last = max((place for place, entry in enumerate(entries) if entry.role), default=-1)
    path = set(_path(entries, last))
    answers = {entries[place].message_id for place in path} - {None}
    spoken = {place for place, entry in enumerate(entries) if place in path or entry.message_id in answers}
    calls = {call for place in spoken for call in entries[place].values("tool_use", "id")}
    return [
        entry
        for place, entry in enumerate(entries)
        if place in spoken or calls & entry.values("tool_result", "tool_use_id")
    ]


def _path(entries: list[Entry], place: int) -> Iterator[int]:
    """The places from this entry up to the first; an entry whose parent is not here follows the line before."""
    places = {entry.uuid: index for index, entry in enumerate(entries) if entry.uuid}
    while place >= 0:
        yield place
        parent = places.get(entries[place].parent or "", place)
        place = parent if parent < place else place - 1
