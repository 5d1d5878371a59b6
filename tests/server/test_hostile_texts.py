"""What a tool prints reaches vLLM as text, whatever it imitates: the plugin takes and makes nothing of it.

What vLLM itself makes of the name of a control token in a message is the same with the plugin and without.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from lam_vllm.types import Message
from tests.field.agent import MODULE, agent
from tests.field.hostile import HOSTILE, REFERENCES
from tests.server.clients import rendered_ids
from tests.server.conftest import MODEL, LiveServer

APIS = ("chat", "responses", "messages")
TEXTS = {name: text for name, text in HOSTILE.items() if name != "surrogates"}  # no UTF-8, so in no request
LIKE_OURS = {*REFERENCES, "a reference alone"}
"""Texts in which a line reads like a reference of ours."""
CONTROL = [
    Tokenizer.from_file(str(Path(MODEL) / "tokenizer.json")).token_to_id(f"<|im_{end}|>") for end in ("start", "end")
]


def printed(*texts: str) -> list[Message]:
    """A conversation with these results."""
    return [*agent(*texts)]


def control_tokens(ids: list[int]) -> Counter[int]:
    """How often each token stands there that begins or ends a message."""
    return Counter(each for each in ids if each in CONTROL)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("name", TEXTS)
def test_it_is_rendered_as_it_is_but_for_a_mark_where_it_reads_like_a_reference(
    name: str, api: str, hooked: LiveServer
) -> None:
    text = TEXTS[name]
    expected = rendered_ids(hooked, api, printed(f"\\{text}" if name in LIKE_OURS else text), options=False)
    assert rendered_ids(hooked, api, printed(text)) == expected


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_around_it_a_result_is_left_out_and_no_message_more_begins_or_ends(text: str, hooked: LiveServer) -> None:
    messages = printed(MODULE, text, MODULE)
    compacted, whole = (rendered_ids(hooked, "chat", messages, options=options) for options in (True, False))
    assert len(compacted) < len(whole)
    assert control_tokens(compacted) == control_tokens(whole)
