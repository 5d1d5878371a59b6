"""The table of an index: what is read is what was written, and bytes of others are a named error."""

from __future__ import annotations

import random
import struct
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lam_vllm.codec import CodecError
from lam_vllm.index.segments import SEGMENT_ROWS
from lam_vllm.index.table import EVICTED, MOST_WINDOWS, NAME_BYTES, Table, read_table, table_bytes
from lam_vllm.memory import SeenWindow

COUNTS = st.integers(0, 2**32 - 2)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Retained windows in order, and among them dropped ones for which an earlier row stands."""
    windows: list[SeenWindow] = []
    rows = 0
    for own in draw(st.lists(st.booleans(), max_size=SEGMENT_ROWS + 40)):
        start = draw(st.integers(0, 2**32 - 3))
        place = draw(COUNTS), draw(st.none() | st.integers(0, 2**31 - 1)), draw(COUNTS), start, start + 1
        if own or not rows:
            windows.append(SeenWindow(*place, rows))
            rows += 1
        else:
            windows.append(SeenWindow(*place, draw(st.integers(0, rows - 1)), draw(st.floats(0, 2, width=32))))
    name = draw(st.just(EVICTED) | st.binary(min_size=NAME_BYTES, max_size=NAME_BYTES))
    error, uncovered, tail = draw(st.floats(0, 1)), draw(st.integers(0, 2**64 - 1)), draw(st.binary(max_size=100))
    return Table(384, rows, 0.0026, error, uncovered, tuple(windows), (name,) * (rows // SEGMENT_ROWS), tail)


@given(table=tables())
def test_what_is_read_is_what_was_written(table: Table) -> None:
    assert read_table(table_bytes(table)) == table


def window(row: int, distance: float | None = None, **other: int) -> SeenWindow:
    return SeenWindow(7, None, 1, 0, 10, row, distance)._replace(**other)


GOOD = Table(384, 2, 0.0026, 0.01, 77, (window(0), window(0, 0.1), window(1), window(1, 0.0)), (), b"the tail")
BAD_WINDOWS = {
    "a row that nobody has": (window(0), window(1), window(2, 0.1)),
    "a row twice": (window(0), window(0), window(1)),
    "rows out of order": (window(1), window(0)),
    "a row of a later window": (window(0), window(1, 0.1), window(1)),
    "a distance below 0": (window(0), window(1), window(0, -0.5)),
    "a distance that is no number": (window(0), window(1), window(0, float("nan"))),
    "an endless distance": (window(0), window(1), window(0, float("inf"))),
    "an empty span": (window(0), window(1, end=0)),
    "a negative part": (window(0), window(1, part=-7)),
}


@pytest.mark.parametrize("why", BAD_WINDOWS)
def test_a_table_that_contradicts_itself_is_none(why: str) -> None:
    with pytest.raises(CodecError):
        read_table(table_bytes(replace(GOOD, windows=BAD_WINDOWS[why])))


@pytest.mark.parametrize(
    "wrong", [{"eps": 0.0}, {"eps": float("nan")}, {"eps": float("inf")}, {"embedding_error": -1.0}]
)
def test_a_bound_that_none_can_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(CodecError, match="eps"):
        read_table(table_bytes(replace(GOOD, **wrong)))  # type: ignore[arg-type]


def test_a_head_that_promises_more_than_there_is_allocates_nothing_and_is_refused() -> None:
    data = table_bytes(GOOD)
    for rows, windows in ((2**32 - 1, 4), (2, 2**32 - 1), (2**32 - 1, 2**32 - 1), (5, 4), (2, 3), (2, 5), (2, 0)):
        with pytest.raises(CodecError):
            read_table(data[:12] + struct.pack("<II", rows, windows) + data[20:])


@pytest.mark.parametrize("packed", [b"", b"no zlib", zlib.compress(bytes(10**8)), zlib.compress(bytes(112)) + b"x"])
def test_windows_that_do_not_unpack_to_their_size_are_refused(packed: bytes) -> None:
    data = table_bytes(GOOD)
    (size,) = struct.unpack_from("<I", data, 20)
    hostile = data[:20] + struct.pack("<I", len(packed)) + data[24:52] + packed + data[52 + size :]
    with pytest.raises(CodecError, match="windows"):
        read_table(hostile)


def test_a_table_with_too_many_windows_is_neither_written_nor_read() -> None:
    many = replace(GOOD, windows=(*GOOD.windows, *[window(0, 0.1)] * MOST_WINDOWS))
    with pytest.raises(CodecError, match="windows"):
        table_bytes(many)
    data = table_bytes(GOOD)
    with pytest.raises(CodecError, match=f"0 to {MOST_WINDOWS}"):
        read_table(data[:16] + struct.pack("<I", MOST_WINDOWS + 1) + data[20:])


def test_damaged_bytes_are_a_named_error_or_a_table() -> None:
    draw, data = random.Random(5), table_bytes(GOOD)
    for turn in range(5_000):
        hostile = bytearray(data)
        hostile[draw.randrange(len(hostile))] = draw.randrange(256)
        cut = bytes(hostile[: draw.randrange(len(hostile))] if turn % 3 == 0 else hostile)
        try:
            table = read_table(cut)
        except CodecError:
            continue
        assert len(table.segments) == table.rows // SEGMENT_ROWS
        assert all(0 <= each.row < table.rows for each in table.windows)
