"""How figures are written."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lam_vllm.evaluation.measures.gold import WRITES_NEW_TEXT, Unmeasurable
from lam_vllm.evaluation.tables import Column, Figures, cell, number, percent


@given(st.floats(0, 1), st.integers(0, 3))
def test_only_all_is_written_as_100_percent(share: float, digits: int) -> None:
    assert (float(percent(digits)(share).rstrip("%")) == 100) == (share == 1)


def test_what_was_not_measured_is_never_a_number() -> None:
    assert cell(None, percent(1)) == "-"
    assert cell(WRITES_NEW_TEXT, percent(1)) == "n/m"
    assert cell(Unmeasurable("no run"), percent(1)) == "-"
    assert cell(1234.5, number(",.1f")) == "1,234.5"


def test_csv_has_every_key_of_every_record_and_the_words_of_what_was_not_measured() -> None:
    figures = Figures("t", "", (Column("a", "A"),), [{"a": 1, "b": None}, {"a": WRITES_NEW_TEXT, "c": "x, y"}])
    assert figures.csv() == 'a,b,c\n1,,\nnot measurable: writes new text,,"x, y"\n'


def test_a_table_without_records_is_an_empty_one() -> None:
    assert Figures("t", "", (Column("a", "A"),), []).csv().strip() == ""
