"""What a search has derived of its rows is of use to it, and changes nothing that it proposes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lam_vllm.search import BandedSearch, ExhaustiveSearch, PrunedSearch, Search
from lam_vllm.search.growing import CHUNK, DerivedRows
from lam_vllm.types import Embedding
from tests.search.made import mixed_rows, some_basis, unit

DIMENSION = 33
SEARCHES: dict[str, Search] = {
    "exhaustive": ExhaustiveSearch(),
    "banded": BandedSearch(DIMENSION),
    "pruned": PrunedSearch(some_basis(1, 20, DIMENSION)),
}


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(sorted(SEARCHES)),
    cuts=st.lists(st.integers(0, 31), max_size=6),
    kept=st.integers(0, 31),
)
def test_what_is_proposed_depends_on_the_rows_and_not_on_how_they_arrived_or_were_forked(
    seed: int, name: str, cuts: list[int], kept: int
) -> None:
    query, rows = mixed_rows(seed, DIMENSION, 0.95, 10)
    eligible = np.random.default_rng(seed).random(len(rows)) < 0.7
    expected = SEARCHES[name].fork(0).propose(rows, eligible, query, 0.95)

    search: Search = SEARCHES[name].fork(0)
    for stop in sorted(cuts):
        search.propose(rows[:stop], eligible[:stop], query, 0.95)
    assert search.propose(rows, eligible, query, 0.95) == expected

    other = search.fork(kept)
    elsewhere = np.concatenate([rows[:kept], rows[kept:][::-1]])
    marks = np.concatenate([eligible[:kept], eligible[kept:][::-1]])
    assert other.propose(elsewhere, marks, query, 0.95) == SEARCHES[name].fork(0).propose(elsewhere, marks, query, 0.95)
    assert search.propose(rows, eligible, query, 0.95) == expected, "a fork is independent"


def test_no_row_is_derived_twice_and_each_is_what_it_is_alone() -> None:
    seen: list[int] = []

    def derive(rows: Embedding) -> Embedding:
        seen.append(len(rows))
        return 2 * rows[:, :1]

    rows = unit(np.random.default_rng(1).standard_normal((2 * CHUNK + 5, 2)))
    derived = DerivedRows(1, np.float32, derive)
    for count in (1, 1, 3, len(rows)):
        assert derived.of(rows[:count]).tolist() == (2 * rows[:count, :1]).tolist()
    assert sum(seen) == len(rows)
    assert max(seen) <= CHUNK
    assert derived.nbytes == 4 * len(rows)
    assert derived.fork(7).of(rows[:9]).tolist() == (2 * rows[:9, :1]).tolist()
    assert sum(seen) == len(rows) + 2


def test_fewer_rows_than_were_seen_belong_to_another_matrix() -> None:
    query, rows = mixed_rows(1, DIMENSION, 0.95, 3)
    for name in ("banded", "pruned"):
        search = SEARCHES[name].fork(0)
        search.propose(rows, np.ones(len(rows), np.bool_), query, 0.95)
        with pytest.raises(ValueError, match="rows: 9 are not allowed; allowed: at least 10"):
            search.propose(rows[:9], np.ones(9, np.bool_), query, 0.95)
