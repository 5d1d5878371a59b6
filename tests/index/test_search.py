"""A search of an index: the nearest windows by their decoded rows, and certificates that hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lam_vllm.compactor import Compactor
from lam_vllm.config import Profile, make_config
from lam_vllm.encoders.base import Encoder
from lam_vllm.errors import OptionError
from lam_vllm.evaluation.corpus import Run
from lam_vllm.index import Completer, PrefixIndex, PrefixWindows, build_index, index_eps, nearest
from lam_vllm.index.segments import SEGMENT_ROWS
from lam_vllm.memory import SeenWindow
from lam_vllm.types import Embedding
from tests.core.chats import BagOfWords, chats
from tests.index.prefixes import DIMENSION, EPS, compactor_of, prefix_of, unit_rows, windows_of

PROFILES: tuple[Profile, ...] = ("guarded", "paper")


def unit(vector: Any) -> Any:
    wide = np.asarray(vector, np.float64)
    return wide / np.linalg.norm(wide)


def decoded(index: PrefixIndex) -> Embedding:
    rows: Embedding = np.concatenate([segment.rows for segment in index.segments if segment is not None])
    return rows


def violations(index: PrefixIndex, query: Embedding, originals: dict[tuple[Any, ...], Embedding], k: int) -> list[Any]:
    """Hits of whose windows one would have scored further from the score than the certificate says, in float64."""
    direction, wrong = unit(query), []
    for hit in nearest(index, query, k):
        own = (hit.message, hit.part, hit.start, hit.end)
        for place in (own, *((each.message, each.part, each.start, each.end) for each in hit.dropped)):
            true = float(originals[place].astype(np.float64) @ direction)
            if abs(true - hit.score) > hit.total:
                wrong.append((place, true, hit))
    return wrong


@given(seed=st.integers(0, 1_000), count=st.integers(1, SEGMENT_ROWS + 30), k=st.integers(1, 100))
@settings(deadline=None, max_examples=40)
def test_hits_are_the_best_by_cosine_with_ties_in_order_of_arrival(seed: int, count: int, k: int) -> None:
    index = build_index(prefix_of(unit_rows(count)), EPS)
    query = unit_rows(1, seed)[0]
    hits = nearest(index, query, k)
    scores = (decoded(index).astype(np.float64) * unit(query)).sum(axis=1)
    expected = sorted(range(count), key=lambda row: (-scores[row], row))[:k]
    assert [hit.message for hit in hits] == expected
    assert [hit.score for hit in hits] == pytest.approx([scores[row] for row in expected], abs=1e-15)


def test_equal_rows_have_equal_scores_wherever_they_stand() -> None:
    rows = np.repeat(unit_rows(1), SEGMENT_ROWS + 37, axis=0)
    hits = nearest(build_index(prefix_of(rows), EPS), unit_rows(1, 9)[0], 1_000)
    assert len({hit.score for hit in hits}) == 1
    assert [hit.message for hit in hits] == list(range(len(rows)))


def test_what_a_hit_stands_for_is_told_with_the_largest_distance() -> None:
    rows = unit_rows(2)
    windows = (
        SeenWindow(1, None, 1, 0, 9, 0),
        SeenWindow(3, 0, 2, 4, 8, 0, 0.1),
        SeenWindow(3, 1, 2, 0, 5, 1),
        SeenWindow(5, None, 3, 0, 9, 0, 0.25),
    )
    index = build_index(PrefixWindows("p", (), windows, rows, 0.01), EPS)
    first, second = nearest(index, rows[0], 10)
    assert (first.message, first.part, first.result, first.start, first.end) == (1, None, 1, 0, 9)
    assert [tuple(each) for each in first.dropped] == [(3, 0, 2, 4, 8, 0.1), (5, None, 3, 0, 9, 0.25)]
    assert (first.delta_hat, second.delta_hat) == (0.25, 0.0)
    assert 0.0 < first.codec_error < 2 * EPS * DIMENSION**0.5
    assert first.embedding_error == 0.01
    assert first.total == pytest.approx(0.25 + first.codec_error + 0.01)
    assert second.dropped == ()


def test_without_its_oldest_segments_an_index_says_what_is_missing_and_finds_the_rest() -> None:
    count = 2 * SEGMENT_ROWS + 10
    prefix = prefix_of(unit_rows(count))
    prefix = PrefixWindows(
        "p",
        (),
        (*prefix.windows, SeenWindow(7, 0, 1, 0, 1, 5, 0.1), SeenWindow(7, 0, 1, 0, 1, count - 1, 0.1)),
        prefix.rows,
    )
    index = build_index(prefix, EPS)
    assert (index.missing, build_index(prefix, EPS, index.nbytes).missing) == (0, 0)
    smaller = build_index(prefix, EPS, index.nbytes - 1)
    first = index.segments[0]
    assert first is not None
    assert (smaller.segments[0], smaller.nbytes) == (None, index.nbytes - len(first.data))
    assert smaller.missing == SEGMENT_ROWS + 1
    hits = nearest(smaller, prefix.rows[3], 1_000)
    assert sorted(hit.message for hit in hits) == list(range(SEGMENT_ROWS, count))
    nothing = build_index(prefix, EPS, 0)
    assert (nothing.missing, nearest(nothing, prefix.rows[3], 5)) == (len(prefix.windows), ())


@pytest.mark.parametrize("profile", PROFILES)
@given(chat=chats(), seed=st.integers(0, 1_000))
@settings(deadline=None, max_examples=50)
def test_certificates_hold_for_random_chats_and_for_queries_along_an_error(
    profile: Profile, chat: list[Any], seed: int
) -> None:
    prefix, encode = windows_of(compactor_of(profile), chat), BagOfWords().encode
    prefix = Completer(BagOfWords()).complete("", prefix)
    index = build_index(prefix, EPS)
    originals = {}
    for each in prefix.windows:
        content = chat[each.message]["content"]
        text = content if each.part is None else content[each.part]["text"]
        originals[each.message, each.part, each.start, each.end] = encode(text[each.start : each.end])
    queries = list(np.random.default_rng(seed).standard_normal((3, 64)))
    if len(prefix.rows):
        queries += [row for row in prefix.rows.astype(np.float64) - decoded(index).astype(np.float64) if row.any()]
    for query in queries:
        assert violations(index, unit(query).astype(np.float32), originals, 100) == []


@pytest.mark.parametrize("profile", PROFILES)
def test_certificates_hold_on_a_recorded_run_and_hits_have_their_text(
    profile: Profile, six_runs: list[Run], count_tokens: Any, encoder: Encoder
) -> None:
    compactor = Compactor(make_config({"profile": profile}), count_tokens, encoder)
    completer = Completer(encoder)
    run = next(run for run in six_runs if "django" in run.id)
    prefix = completer.complete("", windows_of(compactor, run.messages))
    index = build_index(prefix, index_eps(0.2631, encoder.dimension))
    texts = {
        (each.message, each.part, each.start, each.end): run.messages[each.message]["content"][each.start : each.end]
        for each in prefix.windows
    }
    rows = {text: encoder.encode(text) for text in dict.fromkeys(texts.values())}
    originals = {place: rows[text] for place, text in texts.items()}
    apart = [rows[texts[each.message, each.part, each.start, each.end]].astype(np.float64) - decoded(index)[each.row]
             for each in prefix.windows if each.distance is not None]  # fmt: skip
    queries = [encoder.encode(query) for query in ("the test that fails", "a function that sorts")]
    queries += [unit(difference).astype(np.float32) for difference in apart if difference.any()]
    for query in queries:
        assert violations(index, query, originals, 100) == []
    found = compactor.search(run.messages, "the test that fails", 3)
    assert [hit.text for hit in found.hits] == [texts[hit.message, hit.part, hit.start, hit.end] for hit in found.hits]
    assert (found.windows, found.missing, found.encoder) == (len(prefix.windows), 0, encoder.name)
    assert (found.prefix_digest, found.uncovered_characters) == (prefix.digest, 0)


def test_a_window_is_found_by_a_part_of_its_text_and_a_long_query_counts_by_its_first_window() -> None:
    compactor = compactor_of("paper")
    chat = [{"role": "tool", "content": f"number {place} " + f"word{place} " * 30} for place in range(9)]
    for query in ("word4 word4 word4", "word4 " * 40 + "word7 " * 400):
        best, *_ = compactor.search(chat, query, 3).hits
        assert best.message == 4
        assert best.text is not None
        assert best.text.startswith("number 4")


def test_a_search_leaves_nothing_that_a_request_would_not_and_the_rest_is_as_ever() -> None:
    chat = [{"role": "tool", "content": "some words of a result, and others"}]
    compactor, other = compactor_of("paper"), compactor_of("paper")
    assert compactor.search(chat, "words").prefix_digest == windows_of(other, chat).digest
    assert compactor.search([], "words").hits == ()
    with pytest.raises(OptionError, match="profile: 'exact'"):
        Compactor(make_config({"profile": "exact"}), len).search(chat, "words")
