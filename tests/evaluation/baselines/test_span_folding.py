"""Folding of contiguous repeated lines."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from lam_vllm import reconstruct
from lam_vllm.evaluation.baselines.span_folding import REFERENCE, REFERENCE_TOKENS, SpanFolding
from lam_vllm.evaluation.corpus import Run
from lam_vllm.stubs import parse_stub
from tests.evaluation.baselines.hand_made import count_words, results_of, run_of

A, B, C, D = (f"{letter} stands for a line of several words, here and there" for letter in "ABCD")


def fold(*results: str) -> list[str]:
    return results_of(SpanFolding(count_words, "own text too").shorten(run_of(*results)))


def test_three_repeated_lines_become_one_reference() -> None:
    assert fold(f"top\n{A}\n{B}\n{C}", f"{A}\n{B}\n{C}\nend") == [
        f"top\n{A}\n{B}\n{C}",
        "[lines 2-4 of result 1 repeat]\nend",
    ]


def test_two_lines_are_too_few_and_three_short_ones_too_little() -> None:
    for text in (f"{A}\n{B}", "a b c d e f\ng h i j k l\nm n o p q r"):
        assert fold(text, text) == [text, text]


def test_a_run_that_costs_no_more_than_its_reference_stays() -> None:
    text = "x" * 14 + "\n" + "y" * 14 + "\n" + "z" * 14  # 42 characters, 6 tokens
    assert fold(text, text) == [text, text]


def test_the_longest_earlier_run_is_named() -> None:
    apart, together = f"7\t{A}\n8\t{B}\n10\t{C}", f"7\t{A}\n8\t{B}\n9\t{C}"
    assert fold(apart, together, together) == [apart, together, "[lines 1-3 of result 2 repeat]"]


def test_a_folded_line_is_no_target() -> None:
    text = f"{A}\n{B}\n{C}"
    both = f"{text}\n{D}"
    third = f"{B}\n{C}\n{D}"
    assert fold(text, both, third) == [text, f"[lines 1-3 of result 1 repeat]\n{D}", third]


def test_lines_of_the_same_text_repeat_too() -> None:
    assert fold(f"{A}\n{B}\n{C}\n{A}\n{B}\n{C}") == [f"{A}\n{B}\n{C}\n[lines 1-3 above repeat]"]


def test_as_public_tools_do_it_a_text_is_compared_with_those_before_it_alone() -> None:
    twice = f"{A}\n{B}\n{C}\n{A}\n{B}\n{C}"
    method = SpanFolding(count_words)
    assert results_of(method.shorten(run_of(twice, twice))) == [twice, "[lines 1-6 of result 1 repeat]"]


def test_the_price_model_charges_fifteen_tokens(count_tokens: Callable[[str], int]) -> None:
    text = f"{A}\n{B}\n{C}"
    assert (
        results_of(SpanFolding(count_tokens, "15 tokens").shorten(run_of(text, f"{text}\nend")))[1]
        == f"{REFERENCE}\nend"
    )
    assert count_tokens(REFERENCE + "\n") == REFERENCE_TOKENS


def test_line_numbers_may_move_together() -> None:
    before = f"7\t{A}\n8\t{B}\n9\t{C}"
    assert fold(before, f"17\t{A}\n18\t{B}\n19\t{C}")[1] == "[lines 1-3 of result 1 repeat, numbers +10]"
    apart = f"17\t{A}\n18\t{B}\n20\t{C}"
    assert fold(before, apart)[1] == apart


def test_the_shift_is_that_of_the_first_numbered_line_wherever_it_stands() -> None:
    lines = f"{A}\n{B}\n{C}\n"
    assert fold(f"{lines}7\t{D}", f"{lines}9\t{D}")[1] == "[lines 1-4 of result 1 repeat, numbers +2]"


def test_references_lead_back_to_the_recorded_runs(six_runs: list[Run], count_tokens: Callable[[str], int]) -> None:
    method = SpanFolding(count_tokens, "own text too")
    for run in six_runs:
        assert reconstruct(method.shorten(run)) == list(run.messages)


def test_a_reference_costs_about_what_is_charged_for_it(
    swesmith_runs: list[Run], six_runs: list[Run], count_tokens: Callable[[str], int]
) -> None:
    method = SpanFolding(count_tokens, "own text too")
    runs = [*swesmith_runs, *six_runs]
    lines = [line for run in runs for text in results_of(method.shorten(run)) for line in text.split("\n")]
    prices = [count_tokens(line + "\n") for line in lines if parse_stub(line)]
    assert len(prices) > 100
    assert abs(sum(prices) / len(prices) - REFERENCE_TOKENS) < 1.5


lines = st.sampled_from([A, B, C, D, "", "}", "12:\tx = 1", "15:\tx = 1"])
texts = st.lists(lines, min_size=1, max_size=12).map("\n".join)


@settings(deadline=None)
@given(st.lists(texts, max_size=5))
def test_no_result_gets_longer_and_every_one_can_be_written_out_again(results: list[str]) -> None:
    run = run_of(*results)
    messages = SpanFolding(count_words, "own text too").shorten(run)
    for before, after in zip(results, results_of(messages), strict=True):
        assert count_words(after) <= count_words(before)
    assert reconstruct(messages) == list(run.messages)
