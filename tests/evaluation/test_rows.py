"""The file of rows: what is written is read again, interrupted or not, and rows of another origin stay apart."""

from __future__ import annotations

import lzma
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lam_vllm.errors import InputFileError
from lam_vllm.evaluation.corpus import Run
from lam_vllm.evaluation.rows import Row, RowStore, by, keep_latest, read_rows

RUN = Run("a", "agent", ({"role": "tool", "content": "one\n\ud800"},))
ROW = Row("masking", "k=3", 1, "agent", "a", True, True, 2, 10, 5, 3, None, None, 4, None, 0.25)


class Masking:
    name, setting, seed, verbatim = "masking", "k=3", 1, True

    def shorten(self, run: Run) -> list[Any]:
        return list(run.messages)


def stored(path: Path, setup: str = "", run: Run = RUN) -> Row | None:
    store = RowStore(path, setup, Row)
    return store.get(Masking(), store.stamp(run))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    store = RowStore(tmp_path / "new/rows.jsonl", "", Row)
    store.add(ROW, store.stamp(RUN))
    return tmp_path / "new/rows.jsonl"


def test_a_row_comes_back_as_it_was(path: Path) -> None:
    assert stored(path) == ROW and read_rows(path, Row) == [ROW]


def test_a_half_written_last_line_is_dropped_and_can_be_written_again(path: Path) -> None:
    whole = path.read_bytes()
    for length in (0, 1, len(whole) // 2, len(whole) - 30, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert stored(path) is None
        again = RowStore(path, "", Row)
        again.add(ROW, again.stamp(RUN))
        assert path.read_bytes() == whole


def test_a_broken_line_in_the_middle_is_an_error_that_names_it(path: Path) -> None:
    for broken, why in (("[1, 2]", "expected a row of"), ("{", "not JSON")):
        path.write_text(path.read_text(encoding="utf-8") + broken + "\n", encoding="utf-8")
        with pytest.raises(InputFileError, match=rf"rows\.jsonl, line 3: {why}"):
            RowStore(path, "", Row)
        path.write_text("".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[:-1]), encoding="utf-8")


def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text('["mine"]\n', encoding="utf-8")
    with pytest.raises(InputFileError, match="not a file of rows"):
        RowStore(path, "", Row)
    assert path.read_text(encoding="utf-8") == '["mine"]\n'


def test_a_file_that_cannot_be_written_or_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match=str(tmp_path)):
        RowStore(tmp_path, "", Row)
    with pytest.raises(InputFileError, match="absent"):
        read_rows(tmp_path / "absent", Row)


def test_a_packed_file_is_read_too_and_half_of_one_is_refused(path: Path) -> None:
    packed = path.with_suffix(".jsonl.xz")
    packed.write_bytes(lzma.compress(path.read_bytes()))
    assert read_rows(packed, Row) == [ROW]
    packed.write_bytes(packed.read_bytes()[:-8])
    with pytest.raises(InputFileError, match="not a whole xz file"):
        read_rows(packed, Row)


def test_rows_of_another_setup_or_of_another_text_are_not_found(path: Path) -> None:
    assert stored(path, setup="other code") is None
    for changed in (
        replace(RUN, messages=({"role": "tool", "content": "two"},)),
        replace(RUN, gold_patch="@@"),
        replace(RUN, resolved=True),
        replace(RUN, source="other agent"),
    ):
        assert stored(path, run=changed) is None


def test_the_context_of_a_stamp_tells_rows_apart(path: Path) -> None:
    store = RowStore(path, "", Row)
    assert len({store.stamp(RUN), store.stamp(RUN, "a"), store.stamp(RUN, "b"), store.stamp(RUN, "a", "b")}) == 4


def test_a_second_row_of_the_same_key_takes_the_place_of_the_first(path: Path) -> None:
    store, newer = RowStore(path, "", Row), replace(ROW, cpu_ms=1.0)
    store.add(newer, store.stamp(RUN))
    assert stored(path) == newer and read_rows(path, Row) == [newer]


def test_a_row_of_newer_code_takes_the_place_of_an_older_one_when_the_file_is_read(path: Path) -> None:
    store, newer, other = RowStore(path, "newer", Row), replace(ROW, cpu_ms=1.0), replace(ROW, run="A")
    store.add(newer, store.stamp(RUN))
    store.add(other, store.stamp(replace(RUN, id="A")))
    assert read_rows(path, Row) == [newer, other]
    assert len(path.read_text(encoding="utf-8").splitlines()) == 4


def test_what_newer_rows_took_the_place_of_can_be_dropped_from_the_file(path: Path) -> None:
    store, newer = RowStore(path, "newer", Row), replace(ROW, cpu_ms=1.0)
    store.add(newer, store.stamp(RUN))
    store.add(replace(ROW, run="A"), store.stamp(replace(RUN, id="A")))
    keep_latest(path, Row)
    assert [row.run for row in read_rows(path, Row)] == ["A", "a"]
    assert len(path.read_text(encoding="utf-8").splitlines()) == 3
    assert stored(path, setup="newer") == newer and stored(path) is None


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2))))
def test_groups_share_their_values_and_hold_every_row_once(pairs: list[tuple[str, int]]) -> None:
    rows = [replace(ROW, method=name, seed=seed, run=str(place)) for place, (name, seed) in enumerate(pairs)]
    groups = by(rows, "method", "seed")
    assert all((row.method, row.seed) == key for key, group in groups.items() for row in group)
    assert sorted((row for group in groups.values() for row in group), key=lambda row: int(row.run)) == rows
