"""The paper's facts, the sample that is fixed by digest, and the sizes of runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.study.corpus_figures import sizes
from lam_vllm.evaluation.study.reproduce import NOT_HERE, fixed_sample, paper_tables, sample_digest


def test_every_row_of_the_papers_tables_has_a_place_for_each_column() -> None:
    tables = paper_tables()
    for table in tables.values():
        assert table["rows"] and all(len(figures) == len(table["columns"]) for figures in table["rows"].values())
    assert tables["12"]["rows"]["L1 then L0"] == [22.97]
    assert tables["17"]["rows"]["1.000"] == [18.02, 11.42, None, None, 21.49]


def test_each_of_the_papers_27_tables_is_computed_or_has_a_reason() -> None:
    assert not NOT_HERE.keys() & paper_tables().keys()
    assert {int(number) for number in (*NOT_HERE, *paper_tables())} == set(range(1, 28))
    assert all(NOT_HERE.values())


@given(st.sets(st.text(max_size=4), max_size=12).flatmap(lambda ids: st.permutations(sorted(ids))), st.integers(0, 12))
def test_the_sample_does_not_depend_on_the_order_of_the_runs(ids: list[str], size: int) -> None:
    runs = [Run(name, "agent", ()) for name in ids]
    chosen = fixed_sample(runs, size)
    assert chosen == fixed_sample(sorted(runs, key=lambda run: run.id), size) and len(chosen) == min(size, len(runs))
    assert sample_digest(chosen) == sample_digest(reversed(chosen))


def test_the_sample_is_that_of_the_smallest_digests() -> None:
    # sha256: b is 3e23..., c is 2e7d..., a is ca97...
    assert [run.id for run in fixed_sample([Run(name, "", ()) for name in "abc"], 2)] == ["c", "b"]


def test_a_turn_is_what_the_model_wrote_and_what_the_tools_printed() -> None:
    messages = (
        {"role": "system", "content": "one two three"},
        {"role": "user", "content": "four"},
        {"role": "assistant", "content": "five six"},
        {"role": "tool", "content": "seven eight nine ten"},
        {"role": "assistant", "content": "eleven"},
    )
    found = sizes([Run("a", "agent", messages)], lambda text: len(text.split()))
    assert (found.context_tokens, found.observation_tokens, found.turn_tokens) == (11, 4, 3.5)
    assert found.workload is not None and found.workload.turn_share == 3.5 / 4
    assert sizes([Run("a", "agent", messages[:2])], len).workload is None
