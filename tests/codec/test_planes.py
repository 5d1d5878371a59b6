"""Bit planes, widths and unary numbers, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lam_vllm.codec import CodecError, planes, rice
from lam_vllm.codec.planes import Numbers

any_numbers = arrays(np.uint32, st.tuples(st.integers(0, 5), st.just(planes.BLOCK)))


@settings(deadline=None)
@given(any_numbers, st.integers(0, 32))
def test_word_b_holds_bit_b_of_every_number(numbers: Numbers, most: int) -> None:
    found = planes.planes_of(numbers, most)
    assert most <= found.shape[1] < most + 8
    for block, words in zip(numbers.tolist(), found.tolist(), strict=True):
        for bit, word in enumerate(words):
            assert word == sum((number >> bit & 1) << place for place, number in enumerate(block))


@settings(deadline=None)
@given(any_numbers, st.data())
def test_the_lowest_bits_come_back(numbers: Numbers, data: st.DataObject) -> None:
    counts = np.array(data.draw(st.lists(st.integers(0, 32), min_size=len(numbers), max_size=len(numbers))), np.uint8)
    words = planes.planes_of(numbers, int(counts.max(initial=0)))[planes.kept_planes(counts)]
    assert len(words) == counts.sum()
    masks = ((np.uint64(1) << counts.astype(np.uint64)) - np.uint64(1)).astype(np.uint32)
    assert (planes.numbers_of(planes.spread(words, counts)) == numbers & masks[:, None]).all()


def test_zigzag_counts_from_zero_outwards() -> None:
    quanta = np.array([0, -1, 1, -2, 2, 2**31 - 1, -(2**31)], np.int32)
    assert planes.zigzag(quanta).tolist() == [0, 1, 2, 3, 4, 2**32 - 2, 2**32 - 1]
    assert (planes.unzigzag(planes.zigzag(quanta)) == quanta).all()


def test_a_width_is_the_bits_of_the_largest_number() -> None:
    numbers = np.zeros((24, planes.BLOCK), np.uint32)
    for width in range(24):
        numbers[width, width] = 2**width - 1
    assert planes.widths_of(numbers).tolist() == list(range(24))
    assert planes.widths_of(numbers + np.uint32(1)).tolist() == [1, *range(2, 25)]


@settings(deadline=None)
@given(st.lists(st.integers(0, 40)))
def test_unary_numbers_come_back(numbers: list[int]) -> None:
    coded = rice.unary(np.array(numbers, np.uint32))
    text = "".join(f"{byte:08b}"[::-1] for byte in coded)
    assert text.rstrip("0") == "".join("0" * number + "1" for number in numbers)
    assert rice.quotients_of(memoryview(coded), len(numbers)).tolist() == numbers


def test_too_few_or_too_many_unary_numbers_are_refused() -> None:
    for count in (1, 3):
        with pytest.raises(CodecError, match="^unary: 2 numbers"):
            rice.quotients_of(memoryview(b"\x05"), count)
    with pytest.raises(CodecError, match="^unary: 2 bytes"):
        rice.quotients_of(memoryview(b"\x05\x00"), 2)


@settings(deadline=None)
@given(st.integers(0, 2**32), st.floats(0, 22), st.sampled_from([32, 96, 384]))
def test_the_cost_of_a_row_is_counted_exactly_and_hardly_any_k_is_cheaper(
    seed: int, magnitude: float, dimension: int
) -> None:
    random = np.random.default_rng(seed)
    numbers = (random.exponential(2.0**magnitude, (6, dimension)) % 2**28).astype(np.uint32)
    k, bits = rice.cheapest(numbers, dimension)
    every = np.stack([(numbers >> np.uint32(other)).sum(axis=1) + (1 + other) * dimension for other in range(28)])
    assert (bits == every[k, np.arange(6)]).all()
    assert (bits <= 1.05 * every.min(axis=0)).all()
