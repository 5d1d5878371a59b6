"""Retained windows looked through by each search: its state follows forks, and decisions stay canonical ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lam_vllm.encoders.base import Embeddings, OnePass
from lam_vllm.encoders.pool import EncoderPool
from lam_vllm.evaluation.baselines.windowed import WindowedRun
from lam_vllm.near_duplicates import Found, RetainedWindows, find_match
from lam_vllm.search import BandedSearch, ExhaustiveSearch, PrunedSearch, Search
from lam_vllm.types import Embedding, Match
from tests.core.fake_encoders import TwoPassBag, noisy_pass
from tests.search.made import some_basis

DIMENSION = TwoPassBag.dimension
T = TwoPassBag.threshold_cos
SEARCHES: dict[str, Search] = {
    "exhaustive": ExhaustiveSearch(),
    "banded": BandedSearch(DIMENSION),
    "pruned": PrunedSearch(some_basis(1, 20, DIMENSION)),
}
WORDS = ("read", "the", "file", "error", "line", "build", "done")
texts = st.lists(st.sampled_from(WORDS), min_size=2, max_size=12).map(" ".join)


def look_up(arriving: list[str], embeddings: Embeddings, retained: RetainedWindows) -> list[Match | None]:
    """The matches of texts in order; those without one are retained, four of five lengths as eligible ones."""
    matches = []
    for text in arriving:
        found = find_match(text, embeddings, retained, T)
        matches.append(found.match)
        if found.match is None:
            retained.add(text, found.embedding, len(text) % 5 > 0)
    return matches


@settings(max_examples=60, deadline=None)
@given(arriving=st.lists(texts, max_size=25), name=st.sampled_from(sorted(SEARCHES)), kept=st.integers(0, 8))
def test_a_fork_goes_on_as_windows_that_were_never_more(arriving: list[str], name: str, kept: int) -> None:
    embeddings = OnePass(TwoPassBag().encode)
    retained = RetainedWindows(DIMENSION, SEARCHES[name])
    matches = look_up(arriving, embeddings, retained)
    stay = [text for text, match in zip(arriving, matches, strict=True) if match is None][:kept]
    fork, again = retained.fork(len(stay)), RetainedWindows(DIMENSION, SEARCHES[name])
    for place, text in enumerate(stay):
        again.add(text, fork.embedding(place), bool(fork.eligible[place]))
    assert look_up(arriving, embeddings, fork) == look_up(arriving, embeddings, again)


@settings(max_examples=40, deadline=None)
@given(arriving=st.lists(texts, max_size=20), name=st.sampled_from(sorted(SEARCHES)))
def test_decisions_are_those_of_canonical_embeddings_whatever_pass_is_fast(arriving: list[str], name: str) -> None:
    bag = TwoPassBag(noise=0.02)
    pool = EncoderPool(bag, noisy_pass(bag.noise))
    try:
        quick = look_up(arriving, pool.embeddings(""), RetainedWindows(DIMENSION, SEARCHES[name]))
    finally:
        pool.close()
    slow = look_up(arriving, OnePass(bag.encode), RetainedWindows(DIMENSION, SEARCHES[name]))
    assert [match and match.representative for match in quick] == [match and match.representative for match in slow]


@settings(max_examples=60, deadline=None)
@given(arriving=st.lists(texts, max_size=25))
def test_pruned_and_exhaustive_search_find_the_same(arriving: list[str]) -> None:
    embeddings = OnePass(TwoPassBag().encode)
    pruned, exhaustive = (RetainedWindows(DIMENSION, SEARCHES[name]) for name in ("pruned", "exhaustive"))
    assert look_up(arriving, embeddings, pruned) == look_up(arriving, embeddings, exhaustive)


def test_a_banded_search_is_given_canonical_embeddings_only() -> None:
    bag = TwoPassBag(noise=0.02)
    pool = EncoderPool(bag, noisy_pass(bag.noise))
    try:
        for name, canonical in (("exhaustive", False), ("pruned", False), ("banded", True)):
            found = find_match("read the file", pool.embeddings(""), RetainedWindows(DIMENSION, SEARCHES[name]), T)
            assert (found.embedding.tobytes() == bag.encode("read the file").tobytes()) is canonical
    finally:
        pool.close()


@pytest.mark.parametrize(("name", "more"), [("exhaustive", 0), ("banded", 16 * 8), ("pruned", 4 * (17 + 21))])
def test_what_a_search_keeps_counts_as_memory(name: str, more: int) -> None:
    retained = RetainedWindows(DIMENSION, SEARCHES[name])
    retained.add("read", TwoPassBag().encode("read"), True)
    before = retained.nbytes
    retained.candidates(retained.embedding(0), T)
    assert retained.nbytes == before + more
    fork = retained.fork(1)
    fork.candidates(fork.embedding(0), T)
    assert fork.nbytes == retained.nbytes, "a fork is looked through in the same way"
    assert fork.canonical_only is retained.canonical_only is (name == "banded")
    assert SEARCHES[name].nbytes == 0, "each conversation has its own"


def test_on_a_recorded_run_the_first_layer_drops_the_same_windows_pruned_and_near_ones_banded(
    recorded: tuple[WindowedRun, Embedding],
) -> None:
    windowed, rows = recorded
    dimension = rows.shape[1]
    dropped = {}
    searches = (ExhaustiveSearch(), PrunedSearch(some_basis(1, 64, dimension)), BandedSearch(dimension))
    for search in searches:
        retained = RetainedWindows(dimension, search)
        found: list[Found] = []
        for text, row in zip(windowed.texts(), rows, strict=True):
            found.append(find_match(text, OnePass(lambda _, row=row: row), retained, 0.95))  # type: ignore[misc]
            if found[-1].match is None:
                retained.add(text, row, True)
        dropped[type(search)] = [look.match for look in found]
    assert dropped[PrunedSearch] == dropped[ExhaustiveSearch]
    assert np.count_nonzero([match is not None for match in dropped[BandedSearch]]) >= 10
