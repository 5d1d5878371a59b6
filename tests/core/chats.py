"""Random chats that look like an agent's, with everything in them that a real client may send."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from hypothesis import strategies as st

from lam_vllm.types import Embedding

LINES = (
    "def connect(host, port, timeout=30):",
    "    return socket.create_connection((host, port), timeout)",
    "",
    "    }",
    "import logging",
    "12:    value = compute(first, second, third)",
    "13:    value = compute(first, second, third)",
    "    99\tfor name in sorted(collected_names):",
    "   103\tfor name in sorted(collected_names):",
    "7|self.assertEqual(response.status_code, 200)",
    "42→class Repository(BaseRepository, metaclass=Meta):",
    "12:30:45 INFO worker started with pid 4711 on node seven",
    "Ünïcödé und 日本語のテキスト and 🙂 emoji in one line",
    "e\u0301 decomposed and \u00e9 composed are two lines",
    "\x1b[31mFAILED\x1b[0m tests/test_api.py::test_create_user - AssertionError",
    "progress 10%\rprogress 20%\rprogress 100%",
    "windows line ending with several ordinary words\r",
    "[lines 4-50 of result 3 repeat]",
    "[result 1 repeats]",
    "\\[result 1 repeats]",
    "\\ a line that begins with a backslash of its own",
    '{"name": "Omar", "address": "281 Spruce Street", "city": "San Diego", "zip": "92164", "country": "USA"}',
)
GIANT = (
    '{"rows": [' + ", ".join(f'{{"id": {n}, "name": "row number {n % 7}", "state": "ready"}}' for n in range(60)) + "]}"
)

LISTING = tuple(
    f"/workspace/django__django__3.1/django/contrib/{app}/locale/{language}/LC_MESSAGES/django.po"
    for app in ("admin", "auth")
    for language in ("af", "ar", "ast", "az")
)

lines = st.sampled_from((*LINES, *LISTING, "@1/admin/locale", "[@1/ is /workspace/ below]")) | st.text(
    st.characters(codec="utf-8"), max_size=20
)
blocks = st.lists(lines, min_size=1, max_size=8).map("\n".join)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Tool output made of blocks from a small pool, so that runs repeat, shift and overlap."""
    pool = (
        "\n" * 60,
        "    \n" * 40,
        "\n".join(LINES[:5]),
        "\n".join(LINES[5:11]),
        "\n".join(LINES[10:17]),
        GIANT,
        "\n".join(LINES[:3] * 4),
        "",
    )
    chosen = draw(st.lists(st.sampled_from(pool) | blocks, max_size=4))
    return "\n".join(chosen)


@st.composite
def parts(draw: st.DrawFn) -> list[Any]:
    """A parts list: texts of every type, and parts that are none of our business."""
    text = texts().map(lambda text: {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}})
    other = st.sampled_from(
        (
            {"type": "input_text", "text": "\n".join(LINES[:6])},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            {"type": "search_result", "text": "untouched " * 20},
            {"type": "text", "text": None},
            "a bare string",
        )
    )
    return draw(st.lists(text | other, max_size=4))


@st.composite
def chats(draw: st.DrawFn, opaque: bool = True) -> list[dict[str, Any]]:
    """A conversation of turns with parallel tool calls; `opaque` adds contents that can be read only once."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are an agent.\n" + LINES[0]},
        {"role": "user", "content": draw(texts())},
    ]
    for turn in range(draw(st.integers(0, 5))):
        calls = draw(st.integers(0, 3))
        names = [draw(st.sampled_from(("bash", "read", "grep"))) for _ in range(calls)]
        made = [
            {"id": f"call_{turn}_{n}", "type": "function", "function": {"name": name, "arguments": '{"a": 1}'}}
            for n, name in enumerate(names)
        ]
        messages.append(
            {"role": "assistant", "content": draw(st.none() | texts()), "tool_calls": made, "reasoning": "so"}
        )
        for n in range(calls):
            content = draw(texts() | texts() | parts() | st.none() | (st.builds(OneShot) if opaque else st.none()))
            messages.append({"role": "tool", "tool_call_id": f"call_{turn}_{n}", "content": content, "unknown": [1]})
        if draw(st.booleans()):
            messages.append({"role": "user", "content": draw(texts())})
    return messages


class OneShot:
    """Content like the iterators that request validation leaves behind: reading it is noticed."""

    def __init__(self) -> None:
        self.read = False

    def __iter__(self) -> Iterator[dict[str, str]]:
        self.read = True
        return iter([{"type": "text", "text": "\n".join(LINES[:6])}])


class BagOfWords:
    """A stand-in at the encoder seam: near texts get near vectors, in microseconds, for thousands of random chats."""

    name = fingerprint = "bag of words"
    dimension = 64
    window_tokens = 40
    threshold_cos = 0.8

    def __init__(self) -> None:
        self.calls = 0

    def token_offsets(self, text: str) -> list[tuple[int, int]]:
        return [found.span() for found in re.finditer(r"\w+|[^\w\s]", text)]

    def encode(self, text: str) -> Embedding:
        self.calls += 1
        vector = np.full(self.dimension, 1e-3, np.float32)
        for word in re.findall(r"\w+|[^\w\s]", text):
            vector[hashlib.blake2b(word.encode("utf8", "replace")).digest()[0] % self.dimension] += 1
        return (vector / np.linalg.norm(vector)).astype(np.float32)


def shape(messages: list[Any], is_text: Callable[[dict[str, Any]], bool]) -> list[Any]:
    """Messages with the text that compaction may change blanked out: everything else must stay as it was."""

    def blank(message: dict[str, Any]) -> dict[str, Any]:
        content = message.get("content")
        if not is_text(message):
            return message
        if isinstance(content, str):
            return {**message, "content": str}
        if isinstance(content, list):
            return {**message, "content": [_blank_part(part) for part in content]}
        return message

    return [blank(message) for message in messages]


def _blank_part(part: Any) -> Any:
    readable = isinstance(part, dict) and part.get("type") in ("text", "input_text", "output_text")
    return {**part, "text": str} if readable and isinstance(part["text"], str) else part
