"""Places where a run shows the same lines before and after a change: an agent read, edited, and read again.

Found by content alone: recorded runs often hold no tool names, and a file is read in many ways.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import NamedTuple, TypeAlias

from lam_vllm.lines import cut_text, number_key
from lam_vllm.messages import is_observation, observed_texts, printed_texts
from lam_vllm.types import Message

LEAST_EQUAL = 5
"""Pieces, blank ones aside, that both reads show in the same order: fewer is no region."""
MOST_CHANGED = 20
"""Pieces between two equal ones: more is another region."""
WRITTEN_CHARACTERS = 4
"""Shorter changed lines stand in any message."""
_EDIT = re.compile(
    r"""
    <<-?\s*\\*['"]?\w                                       # a here document
    | \bsed\s+(?:-\S+\s+)*-\w*i | \bperl\s+-\w*i            # edits in place
    | \bgit\s+(?:apply|checkout|restore|reset|stash)\b | \bpatch\s+-p | \bapply_patch\b
    | \btee\s | \bwrite_text\( | \bopen\([^)\n]*['"][wa]\\*['"]
    | ['"](?:edit|insert|create|write|write_file|str_replace|undo_edit)\\*['"]   # names of tools and their commands
    | <parameter=command>(?:insert|create|str_replace|undo_edit)\b
    | ^(?:edit|insert|create)\s+\S                          # commands of SWE-agent
    """,
    re.VERBOSE | re.MULTILINE,
)
_Span: TypeAlias = tuple[str, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Reread:
    """The text of message `later` (part `part`) shows, changed, a region that message `earlier` showed.

    `changed` are places of the later text's pieces (`lines.cut_text`) that were changed or put in, `deleted` pieces of
    the earlier text that are gone, blank ones left out. `new` are those of the changed whose line, without its number,
    nothing shows before: neither an earlier result nor the later text above it. Any action of the assistant stands
    between the two; `by_command`: one that holds an editing command (here document, sed -i, patch, an edit tool);
    `by_content`: one that holds a changed line.
    """

    earlier: int
    later: int
    part: int | None
    changed: tuple[int, ...]
    new: frozenset[int]
    deleted: tuple[str, ...]
    by_command: bool
    by_content: bool


class _Text(NamedTuple):
    message: int
    part: int | None
    pieces: list[str]
    bodies: list[str]
    telling: frozenset[str]


def find_rereads(messages: Sequence[Message], observations: str = "tool") -> list[Reread]:
    """Every pair of tool results of which the later shows a changed region of the earlier, an action between them.

    A region is pieces (lines, without leading numbers; parts of long lines) that difflib aligns in order: at least
    `LEAST_EQUAL` equal ones that are not blank, more equal ones than changed ones, no change over `MOST_CHANGED`, and
    an equal one at either end. Quadratic in results; the alignment of two texts is quadratic in their lines.
    """
    found: list[Reread] = []
    texts: list[_Text] = []
    before: set[str] = set()
    for later in _texts(messages, observations):
        matcher = SequenceMatcher(lambda body: not body.strip(), autojunk=False)
        matcher.set_seq2(later.bodies)
        for earlier in texts:
            if len(earlier.telling & later.telling) < LEAST_EQUAL or earlier.bodies == later.bodies:
                continue
            said = _said(messages[earlier.message + 1 : later.message])
            matcher.set_seq1(earlier.bodies)
            reread = _reread(earlier, later, matcher.get_opcodes(), before, said)
            if reread is not None and said:
                found.append(reread)
        texts.append(later)
        before.update(later.bodies)
    return found


def _texts(messages: Sequence[Message], observations: str) -> Iterator[_Text]:
    for index in range(len(messages)):
        if is_observation(messages, index, observations):
            for observation in observed_texts(messages, index, 0, ())[0]:
                pieces, unit = cut_text(observation.text)
                bodies = [piece if unit == "part" else _body(piece) for piece in pieces]
                telling = frozenset(body for body in bodies if body.strip())
                yield _Text(index, observation.part, pieces, bodies, telling)


def _body(piece: str) -> str:
    key, _ = number_key(piece)
    return key if isinstance(key, str) else key[-1]


def _said(messages: Sequence[Message]) -> list[str]:
    """What the assistant wrote in these messages, tool calls included; one text per message."""
    return ["\n".join(printed_texts(message)) for message in messages if message.get("role") == "assistant"]


def _reread(
    earlier: _Text, later: _Text, opcodes: Sequence[_Span], before: set[str], said: Sequence[str]
) -> Reread | None:
    changed: list[int] = []
    deleted: list[str] = []
    for region in _regions(opcodes):
        equal = sum(bool(body.strip()) for what, i, j, *_ in region if what == "equal" for body in earlier.bodies[i:j])
        gone = [body for what, i, j, *_ in region if what != "equal" for body in earlier.bodies[i:j] if body.strip()]
        put = [k for what, _, _, a, b in region if what != "equal" for k in range(a, b) if later.bodies[k].strip()]
        if equal >= LEAST_EQUAL and equal > max(len(gone), len(put)):
            changed += put
            deleted += gone
    if not changed and not deleted:
        return None
    first = {body: k for k, body in reversed([*enumerate(later.bodies)])}
    lines = [line for line in (later.bodies[k].strip() for k in changed) if len(line) >= WRITTEN_CHARACTERS]
    return Reread(
        earlier.message,
        later.message,
        later.part,
        tuple(changed),
        frozenset(k for k in changed if later.bodies[k] not in before and first[later.bodies[k]] == k),
        tuple(deleted),
        any(_EDIT.search(text) is not None for text in said),
        any(line in text for text in said for line in lines),
    )


def _regions(opcodes: Sequence[_Span]) -> Iterator[list[_Span]]:
    """Stretches of the alignment that begin and end with equal pieces and hold no long change."""
    region: list[_Span] = []
    for opcode in opcodes:
        what, i, j, a, b = opcode
        if what != "equal" and (not region or max(j - i, b - a) > MOST_CHANGED):
            yield _trimmed(region)
            region = []
        else:
            region.append(opcode)
    yield _trimmed(region)


def _trimmed(region: list[_Span]) -> list[_Span]:
    return region[:-1] if region and region[-1][0] != "equal" else region
