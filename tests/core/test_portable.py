"""Messages on their way to another process."""

from __future__ import annotations

import pickle
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lam_vllm.messages import PORTABLE_LEVELS, chain_digests, observed_texts, portable

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


def nested(levels: int, innermost: Any) -> Any:
    value = innermost
    for _ in range(levels):
        value = [value]
    return value


@given(JSON)
def test_what_json_can_say_arrives_as_it_is_with_the_same_digest(extra: Any) -> None:
    messages = [{"role": "tool", "content": "x", "extra": extra}]
    arrived = pickle.loads(pickle.dumps(portable(messages)))
    assert arrived == messages
    assert chain_digests(arrived, "") == chain_digests(messages, "")


def test_what_lies_too_deep_for_a_pipe_still_tells_two_messages_apart() -> None:
    given_two = [[{"role": "tool", "content": "x", "extra": nested(600, each)}] for each in ("one", "other")]
    arrived = [pickle.loads(pickle.dumps(portable(messages))) for messages in given_two]
    assert chain_digests(arrived[0], "") != chain_digests(arrived[1], "")
    assert portable(given_two[0]) == arrived[0]


def test_what_is_just_deep_enough_is_left_alone() -> None:
    messages = [{"role": "tool", "content": "x", "extra": nested(PORTABLE_LEVELS - 2, "deep")}]
    assert portable(messages) == messages


def test_a_part_whose_type_is_no_word_is_no_text() -> None:
    message = {"role": "tool", "content": [{"type": ["text"], "text": "part"}, {"type": "text", "text": "whole"}]}
    texts, _ = observed_texts([message], 0, 1, ())
    assert [observation.text for observation in texts] == ["whole"]
