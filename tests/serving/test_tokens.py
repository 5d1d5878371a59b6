from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from tokenizers import Tokenizer

from lam_vllm.errors import EncoderError
from lam_vllm.tokens import fast_token_counter, portable_token_counter, portable_tokenizer, token_counter

FILE = str(Path(__file__).parents[2] / ".models/smollm2/tokenizer.json")


@pytest.mark.parametrize("text", ["", "def f(x):\n    return x\n", "漢字 🏳️‍🌈 é", "w " * 5_000])
def test_a_count_is_that_of_the_tokenizer_itself(text: str) -> None:
    tokenizer = Tokenizer.from_file(FILE)
    count = portable_token_counter(portable_tokenizer(SimpleNamespace(_tokenizer=tokenizer)))
    assert count(text) == len(tokenizer.encode(text, add_special_tokens=False))


def test_what_the_server_sets_on_its_tokenizer_does_not_change_a_count() -> None:
    tokenizer = Tokenizer.from_file(FILE)
    tokenizer.enable_truncation(10)
    tokenizer.enable_padding(length=50)
    count = portable_token_counter(portable_tokenizer(SimpleNamespace(_tokenizer=tokenizer)))
    tokenizer.enable_truncation(1)
    assert count("one two three " * 10) > 20
    assert count("one") < 5


def test_a_lone_surrogate_counts_as_the_mark_that_stands_for_it() -> None:
    count = portable_token_counter(portable_tokenizer(SimpleNamespace(_tokenizer=Tokenizer.from_file(FILE))))
    assert count("a \ud800 b") == count("a ? b")


class SlowTokenizer:
    """A tokenizer without a Rust object, as some models have: a word is a token."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[str]:
        assert not add_special_tokens
        return text.split()


def test_a_slow_tokenizer_counts_here_and_travels_too() -> None:
    assert token_counter(SlowTokenizer())("one two three") == 3
    assert portable_token_counter(portable_tokenizer(SlowTokenizer()))("one two three") == 3


def test_one_that_cannot_travel_counts_here_and_says_so_when_it_is_asked_to() -> None:
    class Local(SlowTokenizer):
        """A class that another process cannot import."""

    tokenizer = Local()
    assert token_counter(tokenizer)("one two three") == 3
    with pytest.raises(EncoderError, match=r"tokenizer \(Local\) cannot be given .* use --lam-profile exact"):
        portable_tokenizer(tokenizer)


class Panic(BaseException):
    """Stands for a panic of a Rust library, which is no Exception."""


class PanickingTokenizer:
    """A tokenizer that panics over every text."""

    def no_truncation(self) -> None: ...

    def no_padding(self) -> None: ...

    def encode_batch_fast(self, texts: list[str], *, add_special_tokens: bool) -> list[list[int]]:
        raise Panic("index out of bounds")


def test_a_panic_of_a_tokenizer_is_an_error_that_a_request_survives() -> None:
    with pytest.raises(RuntimeError, match="the tokenizer failed: index out of bounds"):
        fast_token_counter(PanickingTokenizer())("one")
