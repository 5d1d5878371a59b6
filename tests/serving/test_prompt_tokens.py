from __future__ import annotations

from lam_vllm.serving.prompt_tokens import PromptTokens
from lam_vllm.tokens import portable_token_counter
from tests.conftest import SERVED_MODEL
from tests.serving.fakes import TEXT, agent_messages, count_words

MESSAGES = agent_messages(TEXT, TEXT + "\nmore")


class Counter:
    """Counts words, and how often it was asked to."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, text: str) -> int:
        self.asked += 1
        return count_words(text)


def test_each_text_is_counted_once_as_long_as_it_is_remembered() -> None:
    counter = Counter()
    tokens = PromptTokens(counter)
    expected = sum(count_words(message["content"]) for message in MESSAGES)
    assert [tokens.count(MESSAGES, "one") for _ in range(3)] == [expected] * 3
    assert counter.asked == len(MESSAGES)
    assert tokens.count(MESSAGES, "two") == expected
    assert counter.asked == 2 * len(MESSAGES)


def test_what_is_remembered_is_bounded_and_the_sum_is_the_same() -> None:
    counter = Counter()
    tokens = PromptTokens(counter, max_texts=3)
    assert len({tokens.count(MESSAGES, "") for _ in range(2)}) == 1
    assert counter.asked == 2 * len(MESSAGES)


def test_half_a_character_is_counted_too() -> None:
    tokens = PromptTokens(portable_token_counter((SERVED_MODEL / "tokenizer.json").read_text()))
    assert tokens.count([{"role": "tool", "content": "\ud800"}], "\ud800") > 0


def test_calls_and_parts_are_texts_and_media_are_not() -> None:
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "ls", "arguments": '{"path": "/"}'}}]}
    parts = [{"type": "text", "text": "three more words"}, {"type": "image_url", "image_url": {"url": "data:x"}}, 7]
    tokens = PromptTokens(count_words)
    assert tokens.count([{"role": "user", "content": parts}], "") == 3
    assert tokens.count([call], "") > 0
