"""A request as bytes: JSON that Python would not write, and mutations of what is sent."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.server.fuzz_mutations import Draft


@dataclass(slots=True)
class Wire:
    """What is about to be sent."""

    content: bytes
    headers: dict[str, bytes]


def serialized(draft: Draft) -> bytes:
    """The draft as JSON in ASCII, its literals as they are; lone surrogates are escapes, which JSON allows."""
    text = json.dumps(draft.tree)
    for place, literal in reversed(draft.raw.items()):  # a later one may hold an earlier
        text = text.replace(json.dumps(place), literal)
    return text.encode("ascii")


def cut_short(draw: random.Random, wire: Wire) -> None:
    wire.content = wire.content[: draw.randrange(len(wire.content))]


def bad_utf8(draw: random.Random, wire: Wire) -> None:
    place = draw.randrange(len(wire.content))
    bad = draw.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xc0\xaf", b"\0"))
    wire.content = wire.content[:place] + bad + wire.content[place:]


def double_key(draw: random.Random, wire: Wire) -> None:
    key, value = draw.choice(
        (("messages", "[]"), ("lam", '"off"'), ("lam", "{}"), ("role", '"tool"'), ("content", "null"))
    )
    wire.content = wire.content.replace(b"{", b'{"%s": %s, ' % (key.encode(), value.encode()), draw.choice((1, 3)))


def other_encoding(draw: random.Random, wire: Wire) -> None:
    text = wire.content.decode(errors="replace")
    wire.content = draw.choice((text.encode("utf-16"), text.encode("utf-32-le"), b"\xef\xbb\xbf" + wire.content))


def other_document(draw: random.Random, wire: Wire) -> None:
    wire.content = draw.choice((b"", b"null", b"[]", b'"text"', b"0", wire.content * 2, b"<xml/>", b"a=b&c=d"))


def other_type(draw: random.Random, wire: Wire) -> None:
    kinds = (b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=x", b"", b"\xff")
    wire.headers["content-type"] = draw.choice((*kinds, b"application/json; charset=utf-16"))


WIRE_MUTATIONS: dict[str, Callable[[random.Random, Wire], None]] = {
    each.__name__: each for each in (cut_short, bad_utf8, double_key, other_encoding, other_document, other_type)
}
