"""Rows in segments: the same bytes however they came together, errors that are bounds, and bytes of others."""

from __future__ import annotations

import random
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lam_vllm.codec import CodecError, encode, encode_raw, read_header
from lam_vllm.codec.fixed import Blocks, encode_blocks
from lam_vllm.encoders.base import Traits
from lam_vllm.index import EncodedAs, build_index
from lam_vllm.index.segments import SEGMENT_ROWS, Segment, make_segment, read_segment
from lam_vllm.ops.launches import Bound
from lam_vllm.ops.on_device import DeviceArrays
from lam_vllm.types import Embedding
from tests.core.chats import BagOfWords
from tests.index.prefixes import DIMENSION, EPS, prefix_of, unit_rows


def errors_of(rows: Embedding, segment: Segment) -> Embedding:
    found: Embedding = np.linalg.norm(rows.astype(np.float64) - segment.rows.astype(np.float64), axis=1)
    return found


@given(count=st.integers(0, 3 * SEGMENT_ROWS), data=st.data())
@settings(deadline=None, max_examples=25)
def test_any_grouping_of_rows_gives_the_same_bytes_and_full_segments_never_change(
    count: int, data: st.DataObject
) -> None:
    rows = unit_rows(count)
    whole = [segment.data for segment in build_index(prefix_of(rows), EPS).segments if segment]
    for length in sorted(data.draw(st.sets(st.integers(0, count), max_size=3))):
        part = [segment.data for segment in build_index(prefix_of(rows[:length].copy()), EPS).segments if segment]
        full = length // SEGMENT_ROWS
        assert part[:full] == whole[:full]
        assert len(part) == -(-length // SEGMENT_ROWS)
    again = build_index(prefix_of(np.concatenate([rows[: count // 2], rows[count // 2 :]])), EPS)
    assert [segment.data for segment in again.segments if segment] == whole


@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 40),
    eps=st.sampled_from([1e-12, 1e-9, 1e-5, 0.002, 0.03, 0.5, 10.0]),
    dimension=st.sampled_from([1, 2, 31, 33, 384]),
    scale=st.sampled_from([1.0, 1.000001, 0.9995]),  # a unit vector is one within what the encoder is allowed
)
@settings(deadline=None)
def test_the_error_of_every_row_is_bounded_from_above_and_by_less_than_two_units(
    seed: int, count: int, eps: float, dimension: int, scale: float
) -> None:
    rows = unit_rows(count, seed, dimension) * np.float32(scale)
    segment = make_segment(rows, eps)
    measured = errors_of(rows, segment)
    assert (measured <= segment.errors).all()
    unit = max(2 * eps * np.sqrt(dimension) / 255, measured.max() / 254)
    assert (segment.errors <= measured + 1.001 * unit + 1e-12).all()


def test_a_row_that_the_codec_does_not_change_has_no_error_and_equal_rows_stay_equal() -> None:
    rows = np.zeros((3, DIMENSION), np.float32)
    rows[0, 3] = rows[1, 3] = 1.0
    rows[2] = unit_rows(1)[0]
    segment = make_segment(rows, 1e-12)  # quanta beyond what is coded: kept as they are
    assert segment.errors[:2].tolist() == [0.0, 0.0]
    coarse = make_segment(np.concatenate([unit_rows(9), unit_rows(9)]), 0.03)
    assert coarse.rows[:9].tobytes() == coarse.rows[9:].tobytes()


class ByNumpy(ModuleType):
    """What `ops.cuda` is to a GPU, where the device is the host itself."""

    def __init__(self) -> None:
        super().__init__("by numpy")

    def encode_fixed(self, rows: Embedding, bound: Bound) -> Blocks:
        assert float(bound.step) < 2 * EPS < float(bound.step) * 1.0001
        return encode_blocks(rows, EPS)


DEVICE = DeviceArrays(np, ByNumpy(), np.array)


def test_a_device_makes_other_bytes_of_the_same_rows_and_what_was_made_on_one_is_read_anywhere() -> None:
    rows = unit_rows(SEGMENT_ROWS + 9)
    here, there = (EncodedAs("", DIMENSION, EPS, where).build(prefix_of(rows)) for where in (None, DEVICE))
    for one, other in zip(here.segments, there.segments, strict=True):
        assert one is not None
        assert other is not None
        assert one.data != other.data
        assert read_header(other.data[16 + len(one.rows) :]).mode == "fixed"
        assert (one.rows.tobytes(), one.errors.tobytes()) == (other.rows.tobytes(), other.errors.tobytes())
        read = read_segment(other.data, len(other.rows), DIMENSION)
        assert read.rows.tobytes() == one.rows.tobytes()


def test_the_device_of_an_index_is_that_of_its_encoder() -> None:
    class OnDevice(BagOfWords):
        traits = Traits(max_abs=0.5, arrays=DEVICE)

    assert EncodedAs.of(BagOfWords()) == EncodedAs("bag of words", 64, 0.01 * 4 / 8)
    found = EncodedAs.of(OnDevice())
    assert (found.eps, found.device) == (0.005, DEVICE)


def test_what_is_read_is_what_was_made() -> None:
    rows = unit_rows(SEGMENT_ROWS)
    made = make_segment(rows, EPS)
    read = read_segment(made.data, SEGMENT_ROWS, DIMENSION)
    assert (read.rows.tobytes(), read.errors.tobytes()) == (made.rows.tobytes(), made.errors.tobytes())
    assert np.abs(np.linalg.norm(read.rows.astype(np.float64), axis=1) - 1.0).max() < 1e-6


@pytest.mark.parametrize("shape", [(29, DIMENSION), (31, DIMENSION), (30, DIMENSION + 1), (0, DIMENSION)])
def test_a_segment_of_another_shape_than_its_table_says_is_none(shape: tuple[int, int]) -> None:
    with pytest.raises(CodecError):
        read_segment(make_segment(unit_rows(30), EPS).data, *shape)


def test_a_stream_that_is_larger_or_holds_what_is_no_number_is_refused_before_it_is_used() -> None:
    head = make_segment(unit_rows(2), EPS).data[: 16 + 2]
    rows = unit_rows(2)
    assert read_segment(head + encode(rows, EPS), 2, DIMENSION).rows.shape == rows.shape
    rows[1, 3] = np.nan
    for stream in (encode(rows, EPS), encode_raw(rows), encode_raw(np.zeros((100_000, DIMENSION), np.float32))):
        with pytest.raises(CodecError, match="rows"):
            read_segment(head + stream, 2, DIMENSION)


def test_bytes_that_were_damaged_or_made_up_are_a_named_error_and_nothing_else() -> None:
    draw, data = random.Random(3), make_segment(unit_rows(30), EPS).data
    errors = 0
    for turn in range(3_000):
        hostile = bytearray(data)
        for _ in range(draw.randint(1, 4)):
            hostile[draw.randrange(len(hostile) if turn % 2 else 80)] = draw.randrange(256)
        cut = bytes(hostile[: draw.randrange(len(hostile))] if turn % 3 == 0 else hostile)
        try:
            segment = read_segment(cut, 30, DIMENSION)
        except CodecError:
            errors += 1
        else:
            assert np.isfinite(segment.rows).all()
            assert (segment.errors >= 0.0).all()
    assert errors > 1_500
