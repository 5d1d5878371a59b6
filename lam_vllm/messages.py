"""Observation text out of chat messages and back, and the rolling digest that names a prefix."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import xxhash

from lam_vllm.types import Message, Observation, Reason

LOOK_UP_TOOL = "read_earlier_result"
"""Results of the look-up tool are what a model asked to see again: they are never shortened."""

TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
_CALL_SEARCH_LIMIT = 64
"""Messages walked back for a call id. Results stand next to their call; a bound keeps a turn's cost constant."""
PORTABLE_LEVELS = 64
"""Deeper than any observation lies, and less deep than what pickle and Python's own stack take."""


def is_observation(messages: Sequence[Message], index: int, observations: str) -> bool:
    """Whether message `index` holds tool output, by its role: `tool`, legacy `function`, or by `observations`."""
    role = messages[index].get("role")
    if role in ("tool", "function"):
        return True
    follows = index > 0 and messages[index - 1].get("role") == "assistant"
    return observations == "tool+user" and role == "user" and follows


def observed_texts(
    messages: Sequence[Message], index: int, result: int, exclude: Collection[str]
) -> tuple[tuple[Observation, ...], Reason | None]:
    """The texts of tool result number `result` in message `index`, and why there are none where there are none.

    Content that is neither a string nor a `list` is opaque: it may be an iterator that can be read only once.
    """
    content = messages[index].get("content")
    name = _tool_name(messages, index)
    if name == LOOK_UP_TOOL:
        return (), "excluded_tool"
    excluded = name in exclude
    if isinstance(content, str):
        return (Observation(index, None, result, content, excluded),), None
    if content is not None and not isinstance(content, list):
        return (), "not_a_list"
    texts = tuple(
        Observation(index, place, result, part["text"], excluded)
        for place, part in enumerate(content or ())
        if _is_text(part)
    )
    return texts, None if texts else "no_repeat"


def _is_text(part: object) -> bool:
    if not isinstance(part, dict) or not isinstance(part.get("text"), str):
        return False
    kind = part.get("type")
    return isinstance(kind, str) and kind in TEXT_PARTS


def with_texts(message: Message, texts: Mapping[int | None, str]) -> dict[str, Any]:
    """A copy of `message` with these texts in place (key None: string content; else the part's index)."""
    if None in texts:
        return {**message, "content": texts[None]}
    parts = [
        {**part, "text": texts[place]} if place in texts else part for place, part in enumerate(message["content"])
    ]
    return {**message, "content": parts}


def changed_texts(before: Sequence[Message], after: Sequence[Message]) -> tuple[tuple[int, dict[int | None, str]], ...]:
    """What `with_texts` takes to make `after` out of `before`, by index of the message."""
    return tuple(
        (index, _texts_of(new)) for index, (old, new) in enumerate(zip(before, after, strict=True)) if new is not old
    )


def _texts_of(message: Message) -> dict[int | None, str]:
    content = message["content"]
    if isinstance(content, str):
        return {None: content}
    return {place: part["text"] for place, part in enumerate(content) if _is_text(part)}


def portable(messages: Sequence[Message]) -> list[Message]:
    """Copies that another process can be given, of which it would make the same observations and digests.

    They are made of the plain types of JSON. What JSON has no form for, such as an iterator that can be read only once,
    is replaced by its kind, unread; what lies below `PORTABLE_LEVELS` by a hash, so that digests differ where it does.
    """
    return [_portable(message) for message in messages]


@dataclass(frozen=True, slots=True, eq=False)
class Opaque:
    """Stands for a value that cannot be read here, and is equal to no other."""

    kind: str


def _portable(value: Any, levels: int = PORTABLE_LEVELS) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # of a subclass, such as an enumeration, the text itself
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, list | Mapping) and not levels:
        return {"deep": hashlib.sha256(_json(value)).hexdigest()}
    if isinstance(value, list):
        return [_portable(each, levels - 1) for each in value]
    if isinstance(value, Mapping):
        return {_portable_key(key): _portable(each, levels - 1) for key, each in value.items()}
    return Opaque(type(value).__name__)


def _portable_key(key: Any) -> str:
    """The key as JSON would write it."""
    if isinstance(key, str):
        return str.__str__(key)
    return json.dumps(key) if key is None or isinstance(key, bool | int | float) else repr(key)


def newest_turn(messages: Sequence[Message]) -> int:
    """Index of the first message after the last one of the assistant: what this request brings for the first time."""
    last = next((i for i in range(len(messages) - 1, -1, -1) if messages[i].get("role") == "assistant"), -1)
    return last + 1


def chain_digests(messages: Sequence[Message], seed: str) -> list[str]:
    """Hex digest of every prefix: entry i names `seed` and messages 0..i. Linear; reads no one-shot iterator.

    Cryptographic, since what is remembered under a digest is handed out to whoever sends that prefix.
    """
    return _chain(messages, seed, lambda data: hashlib.sha256(data).digest()[:16])


def quick_digests(messages: Sequence[Message], seed: str) -> list[str]:
    """As `chain_digests`, by XXH3: for comparing one's own output with one's own, where nothing depends on a hit."""
    return _chain(messages, seed, xxhash.xxh3_128_digest)


def _canonical(message: Message) -> bytes:
    """Bytes that are equal for messages which mean the same prompt; equal bytes always give equal observations.

    Text comes first, unescaped, since it is most of a conversation; no UTF-8 holds the byte that ends it.
    """
    content, role = message.get("content"), message.get("role")
    text = content.encode(errors="surrogatepass") if isinstance(content, str) else b""
    if len(message) == 2 and isinstance(content, str) and isinstance(role, str):
        return text + b"\xff" + role.encode(errors="surrogatepass")
    fields = dict(message)
    if isinstance(content, str):
        del fields["content"]
    elif not isinstance(content, list | None):
        fields["content"] = _opaque(content)
    if "tool_calls" in fields:
        calls = fields["tool_calls"]
        fields["tool_calls"] = [_parsed_call(call) for call in calls] if isinstance(calls, list) else _opaque(calls)
    if "reasoning_content" in fields:
        fields.setdefault("reasoning", fields.pop("reasoning_content"))
    return text + b"\xfe" + _json(fields)


def _json(value: Any) -> bytes:
    try:
        return _SORTED.encode(value).encode()
    except TypeError:  # keys of several types cannot be sorted; an unsorted digest only costs a memo hit
        return json.dumps(value, skipkeys=True, default=_opaque).encode()


def _chain(messages: Sequence[Message], seed: str, digest: Callable[[bytes], bytes]) -> list[str]:
    digests = []
    running = digest(seed.encode(errors="surrogatepass"))  # of fixed length: no seed runs into the text behind it
    for message in messages:
        running = digest(running + _canonical(message))
        digests.append(running.hex())
    return digests


def _tool_name(messages: Sequence[Message], index: int) -> str | None:
    message = messages[index]
    name = message.get("name")
    if isinstance(name, str):
        return name
    call_id = message.get("tool_call_id")
    if call_id is None:
        return None
    for place in range(index - 1, max(-1, index - 1 - _CALL_SEARCH_LIMIT), -1):
        found = _called_name(messages[place], call_id)
        if found is not None:
            return found
    return None


def _called_name(message: Message, call_id: object) -> str | None:
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return None
    for call in calls:
        if isinstance(call, dict) and call.get("id") == call_id:
            function = call.get("function")
            name = function.get("name") if isinstance(function, dict) else None
            return name if isinstance(name, str) else None
    return None


def printed_texts(message: Message) -> list[str]:
    """What a chat template prints of a message: text, reasoning, and calls in the one form that the digest knows.

    Media and what can be read only once are left out.
    """
    content, calls = message.get("content"), message.get("tool_calls")
    texts = [content, message.get("reasoning", message.get("reasoning_content"))]
    if isinstance(content, list):
        texts += [part.get("text") for part in content if isinstance(part, dict)]
    if isinstance(calls, list):
        texts += [_SORTED.encode(_parsed_call(call)) for call in calls]
    return [text for text in texts if isinstance(text, str)]


def _parsed_call(call: object) -> object:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        return {**call, "function": {**function, "arguments": json.loads(function["arguments"])}}
    except (ValueError, RecursionError):
        return call


_SORTED = json.JSONEncoder(sort_keys=True, default=lambda value: _opaque(value))


def _opaque(value: object) -> dict[str, str]:
    return {"opaque": value.kind if isinstance(value, Opaque) else type(value).__name__}
