"""Windows tile the text, stay within the budget of the real tokenizer, and are cut where the rule says."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lam_vllm.encoders import Encoder, load_encoder
from lam_vllm.types import Window
from lam_vllm.windows import TokenOffsets, fixed_windows, line_windows

Cut: TypeAlias = Callable[[str, TokenOffsets, int], tuple[Window, ...]]
BOTH = pytest.mark.parametrize("cut", [fixed_windows, line_windows])
SMALLEST_BUDGET = 24  # no single token of the vocabulary is more than 18 tokens by itself


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return load_encoder("minilm")


def _base64(size: int, seed: int = 1) -> str:
    return base64.b64encode(random.Random(seed).randbytes(size)).decode()


_PIECES = st.one_of(
    st.sampled_from(["\n", "\r\n", "\r", " ", "\t", "    ", "\n\n\n", "\x0b", "\x0c", "\u2028", "\x85", "\x00"]),
    st.sampled_from(["def encode(text):", "self._internationalization_", "0x7fffe3a2", "-" * 40, "=" * 120]),
    st.sampled_from(
        ["\x1b[31mred\x1b[0m", "e\u0301\u0327\u0301", "नमस्ते", "한국어", "漢字かな交じり文", "ﬁﬀ", "İ", "\ud800"]
    ),
    st.sampled_from(["👩‍👩‍👧‍👦", "🏳️‍🌈", "e" + "\u0301" * 150, "a\u0334" * 60, "𝔘𝔫𝔦𝔠𝔬𝔡𝔢"]),
    st.integers(1, 90).map(_base64),
    st.text(max_size=40),
    st.text(alphabet="abcxyz019_/.-", min_size=20, max_size=120),
)
_TEXTS = st.lists(_PIECES, max_size=60).map("".join)
_BUDGETS = st.integers(SMALLEST_BUDGET, 80)
_thorough = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _check_tiling(text: str, windows: tuple[Window, ...]) -> None:
    assert "".join(text[window.start : window.end] for window in windows) == text
    assert all(window.start < window.end for window in windows)
    assert all(left.end == right.start for left, right in pairwise(windows))
    if windows:
        assert (windows[0].start, windows[-1].end) == (0, len(text))


@BOTH
@_thorough
@given(text=_TEXTS, budget=_BUDGETS)
def test_windows_tile_the_text_within_the_budget(cut: Cut, encoder: Encoder, text: str, budget: int) -> None:
    windows = cut(text, encoder.token_offsets, budget)
    _check_tiling(text, windows)
    counts = [len(encoder.token_offsets(text[window.start : window.end])) for window in windows]
    assert counts == [window.tokens for window in windows]
    assert all(count <= budget for count in counts)


@BOTH
@_thorough
@given(text=_TEXTS, budget=_BUDGETS)
def test_windows_are_a_pure_function(cut: Cut, encoder: Encoder, text: str, budget: int) -> None:
    assert cut(text, encoder.token_offsets, budget) == cut(text, encoder.token_offsets, budget)


@_thorough
@given(text=_TEXTS, budget=_BUDGETS)
def test_fixed_windows_are_cut_only_where_a_token_starts(encoder: Encoder, text: str, budget: int) -> None:
    starts = {start for start, _ in encoder.token_offsets(text)}
    assert {window.start for window in fixed_windows(text, encoder.token_offsets, budget)[1:]} <= starts


@_thorough
@given(text=_TEXTS, budget=_BUDGETS)
def test_line_windows_cut_inside_a_line_only_when_it_is_over_the_budget(
    encoder: Encoder, text: str, budget: int
) -> None:
    starts = {start for start, _ in encoder.token_offsets(text)}
    for window in line_windows(text, encoder.token_offsets, budget)[1:]:
        begin = text.rfind("\n", 0, window.start) + 1
        if window.start != begin:
            line = text[begin:].partition("\n")[0]
            assert window.start in starts
            assert len(encoder.token_offsets(line)) > budget


@_thorough
@given(text=_TEXTS, budget=_BUDGETS)
def test_line_windows_take_every_line_that_fits(encoder: Encoder, text: str, budget: int) -> None:
    windows = line_windows(text, encoder.token_offsets, budget)
    for left, right in pairwise(windows):
        whole_lines = left.start in (0, text.rfind("\n", 0, left.start) + 1) and text[left.end - 1] == "\n"
        if whole_lines:
            line_end = text.find("\n", right.start) + 1 or len(text)
            assert len(encoder.token_offsets(text[left.start : line_end])) > budget


@BOTH
def test_empty_text_has_no_windows(cut: Cut, encoder: Encoder) -> None:
    assert cut("", encoder.token_offsets, 510) == ()


@BOTH
@pytest.mark.parametrize("text", [" ", "\n", "\r\n\t \n" * 2000])
def test_whitespace_alone_is_one_window_without_tokens(cut: Cut, encoder: Encoder, text: str) -> None:
    assert cut(text, encoder.token_offsets, 510) == (Window(0, len(text), 0),)


def test_fixed_windows_hold_exactly_the_budget_of_plain_words(encoder: Encoder) -> None:
    text = "word " * 1300
    assert fixed_windows(text, encoder.token_offsets, 510) == (
        Window(0, 2550, 510),
        Window(2550, 5100, 510),
        Window(5100, 6500, 280),
    )


def test_line_windows_hold_as_many_whole_lines_as_fit(encoder: Encoder) -> None:
    text = "one two three\n" * 10
    windows = line_windows(text, encoder.token_offsets, 7)
    assert [text[window.start : window.end] for window in windows] == ["one two three\n" * 2] * 5


def test_a_long_line_gets_windows_of_its_own(encoder: Encoder) -> None:
    long_line = "word " * 30 + "\n"
    text = "before\n" + long_line + "after\n"
    windows = line_windows(text, encoder.token_offsets, 24)
    assert [text[window.start : window.end] for window in windows] == [
        "before\n",
        "word " * 24,
        "word " * 6 + "\n",
        "after\n",
    ]


def test_only_a_line_feed_ends_a_line(encoder: Encoder) -> None:
    text = "a b c\r\nd e f\rg h\u2028i\x0bj\x85k\n"
    windows = line_windows(text, encoder.token_offsets, 8)
    assert [text[window.start : window.end] for window in windows] == ["a b c\r\n", "d e f\rg h\u2028i\x0bj\x85k\n"]


def test_a_piece_of_a_word_that_is_more_tokens_alone_shortens_its_window() -> None:
    def offsets(text: str) -> list[tuple[int, int]]:
        """Two characters a token, but a text that begins inside the word is one character a token."""
        step = 2 if text.startswith("^") or not text else 1
        return [(at, min(at + step, len(text))) for at in range(0, len(text), step)]

    text = "^" + "x" * 19
    windows = fixed_windows(text, offsets, 4)
    _check_tiling(text, windows)
    assert [window.tokens for window in windows] == [4, 4, 4, 4]


def test_a_token_that_is_over_the_budget_by_itself_is_a_window_of_its_own() -> None:
    def offsets(text: str) -> list[tuple[int, int]]:
        return [(at, at + 4) for at in range(0, len(text), 4)] if len(text) > 4 else [(0, 1)] * 3

    windows = fixed_windows("abcdefgh", offsets, 1)
    assert windows == (Window(0, 4, 3), Window(4, 8, 3))


@BOTH
@pytest.mark.parametrize("text", [_base64(200_000), "漢字" * 60_000, "a.b" * 60_000, ("y" * 300 + "\n") * 600])
def test_the_work_on_a_giant_text_is_linear(cut: Cut, encoder: Encoder, text: str) -> None:
    seen = 0

    def counting(piece: str) -> list[tuple[int, int]]:
        nonlocal seen
        seen += len(piece)
        return encoder.token_offsets(piece)

    windows = cut(text, counting, 510)
    _check_tiling(text, windows)
    assert all(window.tokens <= 510 for window in windows)
    assert seen <= 4 * len(text)


@BOTH
def test_a_budget_below_one_is_refused(cut: Cut, encoder: Encoder) -> None:
    with pytest.raises(ValueError, match="budget: 0 is not allowed; allowed: an integer of at least 1"):
        cut("text", encoder.token_offsets, 0)
