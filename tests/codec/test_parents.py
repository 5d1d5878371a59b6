"""Which row a row is predicted from."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from lam_vllm.codec import CodecError
from lam_vllm.codec.parents import MOST_DEPTH, Parents, choose, residuals, resolve
from tests.codec.matrices import embeddings

Quanta = NDArray[np.int32]


def quanta_of(count: int, dimension: int, seed: int = 0) -> Quanta:
    whole: Quanta = np.rint(embeddings(count, dimension, seed) / 0.02).astype(np.int32)
    return whole


def plainly_chosen(quanta: Quanta) -> list[int | None]:
    """The earlier row whose share of a row is largest, four steps from a root at most, or None."""
    rows = [[int(value) for value in row] for row in quanta]
    depths: list[int] = []
    parents: list[int | None] = []
    for at, row in enumerate(rows):
        energy = max(1, sum(value * value for value in row))
        gains = [
            Fraction(sum(a * b for a, b in zip(row, other, strict=True)) ** 2, max(1, sum(b * b for b in other)))
            for other in rows[:at]
        ]
        open_rows = [earlier for earlier in range(at) if depths[earlier] < MOST_DEPTH]
        best = max(open_rows, key=lambda earlier: gains[earlier], default=None)
        worth = best is not None and gains[best] > energy * Fraction(222, 10) / len(row)
        parents.append(best if worth else None)
        depths.append(depths[best] + 1 if best is not None and worth else 0)
    return parents


@pytest.mark.parametrize("seed", range(4))
def test_the_parent_is_the_earlier_row_that_explains_most(seed: int) -> None:
    quanta = quanta_of(60, 48, seed)
    chosen = choose(quanta)
    plain = plainly_chosen(quanta)
    for row, parent in enumerate(plain):
        if chosen.scales[row]:
            assert chosen.rows[row] == parent
    assert sum(parent is not None for parent in plain) > 30
    assert np.count_nonzero(chosen.scales) == sum(parent is not None for parent in plain)


@pytest.mark.parametrize("size", [2**8, 2**12, 2**17])
def test_of_rows_that_are_nearly_alike_the_nearest_is_found_exactly(size: int) -> None:
    random = np.random.default_rng(size)
    quanta = (size * random.normal(size=64)).astype(np.int32) + random.integers(-1, 2, (40, 64), np.int32)
    chosen = choose(quanta)
    assert chosen.rows[chosen.scales != 0].tolist() == [
        parent for parent in plainly_chosen(quanta) if parent is not None
    ]
    assert np.count_nonzero(chosen.scales) == 39


def test_chains_end_after_four_steps() -> None:
    drifting = np.cumsum(np.random.default_rng(0).normal(size=(80, 64)), axis=0)
    chosen = choose(np.rint(20 * drifting).astype(np.int32))
    depths: list[int] = []
    for parent, scale in zip(chosen.rows.tolist(), chosen.scales.tolist(), strict=True):
        depths.append(depths[parent] + 1 if scale else 0)
    assert max(depths) == MOST_DEPTH


def test_the_choice_among_earlier_rows_does_not_depend_on_later_ones() -> None:
    quanta = quanta_of(50, 64)
    for last in (1, 2**13, 2**20):  # sums within fp32, within float64 only
        longer = np.concatenate([quanta, np.full((1, 64), last, np.int32)])
        assert (choose(longer).rows[:50] == choose(quanta).rows).all()
        assert (choose(longer).scales[:50] == choose(quanta).scales).all()


def test_rows_whose_products_no_float_holds_are_not_predicted() -> None:
    assert not choose(np.full((3, 1024), 2**22 - 1, np.int32)).scales.any()


@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_residuals_resolve_to_the_quanta(count: int) -> None:
    quanta = quanta_of(count, 64)
    chosen = choose(quanta)
    rest = residuals(quanta, chosen)
    resolve(rest, chosen)
    assert (rest == quanta).all()


def test_a_parent_that_comes_later_is_refused() -> None:
    for rows in ([0, 1], [0, 5]):
        with pytest.raises(CodecError, match="^parent: a row that comes later"):
            resolve(np.zeros((2, 4), np.int32), Parents(np.array(rows), np.array([0, 16])))


def test_a_chain_that_is_too_long_is_refused() -> None:
    rows, scales = np.array([0, 0, 1, 2, 3, 4]), np.array([0, 16, 16, 16, 16, 16])
    resolve(np.zeros((5, 4), np.int32), Parents(rows[:5], scales[:5]))
    with pytest.raises(CodecError, match="^parent: more than 4 steps"):
        resolve(np.zeros((6, 4), np.int32), Parents(rows, scales))


def test_a_quantum_that_no_encoder_writes_is_refused() -> None:
    with pytest.raises(CodecError, match="^quantum: "):
        resolve(np.full((1, 4), 2**22, np.int32), Parents(np.zeros(1, np.int64), np.zeros(1, np.int64)))
    with pytest.raises(CodecError, match="^quantum: "):
        resolve(np.full((2, 4), 2**21, np.int32), Parents(np.zeros(2, np.int64), np.array([0, 127])))
