"""Mutations of a request before it is written as JSON: of any value, of messages, and of the plugin's options."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from lam_vllm.serving.options import FIELDS
from tests.server.fuzz_values import CALLS, DEPTHS, HEADERS, NUMBERS, OPTIONS, PARTS, ROLES, SALTS, SMALL_VALUES, TEXTS

Path: TypeAlias = tuple[str | int, ...]


@dataclass(slots=True)
class Draft:
    """A request that is being spoiled. `raw` holds JSON that no Python value stands for, by its place holder."""

    draw: random.Random
    tree: Any
    headers: dict[str, bytes] = field(default_factory=dict)
    raw: dict[str, str] = field(default_factory=dict)

    def pick(self, values: Sequence[Any]) -> Any:
        """One of these, as a copy that another mutation may spoil."""
        return copy.deepcopy(self.draw.choice(values))

    def literal(self, text: str) -> str:
        """A value that is written as this JSON."""
        place = f"@raw {len(self.raw)}@"
        self.raw[place] = text
        return place


def _paths(value: Any, here: Path = ()) -> list[Path]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here, *(path for key, each in below for path in _paths(each, (*here, key)))]


def _any_value(draft: Draft) -> Any:
    kind = draft.draw.randrange(3)
    if kind == 0:
        return draft.literal(draft.draw.choice(NUMBERS))
    return draft.pick(TEXTS if kind == 1 else SMALL_VALUES)


def _replace(draft: Draft, path: Path, value: Any) -> None:
    if not path:
        draft.tree = value
        return
    parent = draft.tree
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value


def _value_at(draft: Draft, path: Path) -> Any:
    value = draft.tree
    for key in path:
        value = value[key]
    return value


def _anywhere(draft: Draft) -> Path:
    return draft.draw.choice(_paths(draft.tree))


def swap_value(draft: Draft) -> None:
    _replace(draft, _anywhere(draft), _any_value(draft))


def nest_value(draft: Draft) -> None:
    path, depth = _anywhere(draft), draft.draw.choice(DEPTHS)
    opening, closing = draft.draw.choice((("[", "]"), ('{"a":', "}")))
    inner = json.dumps("deep") if depth > 450 else json.dumps(_value_at(draft, path))
    _replace(draft, path, draft.literal(opening * depth + inner + closing * depth))


def drop_value(draft: Draft) -> None:
    path = _anywhere(draft)
    if path:
        del _value_at(draft, path[:-1])[path[-1]]


def add_field(draft: Draft) -> None:
    objects = [path for path in _paths(draft.tree) if isinstance(_value_at(draft, path), dict)]
    if objects:
        key = draft.draw.choice(
            ["extra", "", "\ud800", "name", "content", "tool_call_id", "reasoning", "cache_salt", "echo"]
        )
        _value_at(draft, draft.draw.choice(objects))[key] = _any_value(draft)


def _messages(draft: Draft) -> list[Any]:
    """The list that the conversation is in; an empty one that nobody looks at where another mutation took it."""
    tree = draft.tree if isinstance(draft.tree, dict) else {}
    found = tree.get("messages", tree.get("input"))
    return found if isinstance(found, list) else []


def _objects(draft: Draft) -> list[dict[str, Any]]:
    return [message for message in _messages(draft) if isinstance(message, dict)] or [{}]


def _content_key(message: dict[str, Any]) -> str:
    return "output" if "output" in message else "content"


def odd_role(draft: Draft) -> None:
    draft.draw.choice(_objects(draft))["role"] = draft.draw.choice(ROLES)


def odd_text(draft: Draft) -> None:
    message = draft.draw.choice(_objects(draft))
    key, text = _content_key(message), draft.draw.choice(TEXTS)
    old = message.get(key)
    message[key] = draft.draw.choice((text, f"{text}\n{old}", f"{old}{text}{old}"))


def odd_parts(draft: Draft) -> None:
    message = draft.draw.choice(_objects(draft))
    key = _content_key(message)
    parts = [draft.pick(PARTS) for _ in range(draft.draw.randint(0, 4))]
    message[key] = [*parts, {"type": "text", "text": message.get(key)}]


def odd_calls(draft: Draft) -> None:
    draft.draw.choice(_objects(draft))["tool_calls"] = draft.pick(CALLS)


def odd_order(draft: Draft) -> None:
    draft.draw.shuffle(_messages(draft))


def repeat_messages(draft: Draft) -> None:
    messages = _messages(draft)
    for _ in range(draft.draw.choice((1, 2, 30)) if messages else 0):
        messages.insert(draft.draw.randint(0, len(messages)), draft.pick(messages))


def other_field(draft: Draft) -> None:
    """A field of vLLM's that decides how the prompt is made, or whether the plugin may change it."""
    if isinstance(draft.tree, dict):
        key = draft.draw.choice(
            ["truncate_prompt_tokens", "truncation", "cache_salt", "kv_transfer_params", "chat_template_kwargs",
             "add_generation_prompt", "continue_final_message", "tools", "system", "previous_response_id", "documents",
             "instructions", "response_format", "model", "text", "messages", "wait"]
        )  # fmt: skip
        draft.tree[key] = draft.draw.choice([_any_value(draft), {"prompt_token_ids": [1, 2]}, "auto", "disabled", 5])


def option_field(draft: Draft) -> None:
    if isinstance(draft.tree, dict):
        draft.tree["lam"] = _options(draft)


def option_header(draft: Draft) -> None:
    text = json.dumps(draft.draw.choice(OPTIONS)).encode()
    draft.headers["x-lam"] = draft.draw.choice((text, text, draft.draw.choice(HEADERS)))


def option_xargs(draft: Draft) -> None:
    if isinstance(draft.tree, dict):
        name = "lam_" + draft.draw.choice([*FIELDS, "", "nothing", "\ud800"])
        draft.tree["vllm_xargs"] = draft.draw.choice(
            [{name: draft.draw.choice([0, 1, -1, "off", "on", "", 0.5])}, {}, []]
        )


def salt_header(draft: Draft) -> None:
    draft.headers["x-lam-cache-salt"] = draft.draw.choice(SALTS)


def _options(draft: Draft) -> Any:
    if draft.draw.random() < 0.5:
        return draft.pick(OPTIONS)
    return {name: _any_value(draft) for name in draft.draw.sample(FIELDS, draft.draw.randint(1, 2))}


Mutation: TypeAlias = Callable[[Draft], None]
MUTATIONS: dict[str, Mutation] = {
    each.__name__: each
    for each in (
        swap_value, nest_value, drop_value, add_field, odd_role, odd_text, odd_parts, odd_calls, odd_order,
        repeat_messages, other_field, option_field, option_header, option_xargs, salt_header,
    )
}  # fmt: skip
