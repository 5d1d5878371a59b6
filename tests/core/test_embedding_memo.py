"""The memo of embeddings: nothing is encoded twice while it is kept, failures are forgotten, bytes bounded."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import astuple
from random import Random
from threading import Thread

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lam_vllm.encoders.memo import ENTRY_BYTES, EmbeddingMemo, Kind, MemoCounts
from lam_vllm.types import Embedding

DIMENSION = 8
ONE = ENTRY_BYTES + 4 * DIMENSION
KEPT = 4
TEXTS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "", "\ud800")

Key = tuple[str, Kind, str]


def memo(entries: int = KEPT, fingerprint: str = "one") -> EmbeddingMemo:
    return EmbeddingMemo(entries * ONE, fingerprint, DIMENSION)


def row(text: str) -> Embedding:
    return np.full(DIMENSION, len(text), np.float32)


def fill(kept: EmbeddingMemo, *texts: str, salt: str = "", kind: Kind = "fast") -> list[int]:
    """Encode what is new of these texts; the places that were."""
    futures, new = kept.claim(salt, kind, texts)
    for place in new:
        futures[place].set_result(row(texts[place]))
    return new


class Interleaved(RuleBasedStateMachine):
    """Requests that claim texts, and work that ends well or badly in any order between their claims."""

    def __init__(self) -> None:
        super().__init__()
        self.memo = memo()
        self.under_way: dict[Key, Future[Embedding]] = {}
        self.claims = 0

    @rule(
        salt=st.sampled_from(("", "a")),
        kind=st.sampled_from(("fast", "canonical")),
        texts=st.lists(st.sampled_from(TEXTS), max_size=5),
    )
    def claim(self, salt: str, kind: Kind, texts: list[str]) -> None:
        futures, new = self.memo.claim(salt, kind, texts)
        self.claims += len(texts)
        assert len(futures) == len(texts)
        for place, (text, future) in enumerate(zip(texts, futures, strict=True)):
            key = (salt, kind, text)
            assert place not in new or key not in self.under_way, "claimed while somebody else encodes it"
            if future.done():
                assert key not in self.under_way
                assert (future.result() == row(text)).all()
            else:
                assert self.under_way.setdefault(key, future) is future

    @precondition(lambda self: self.under_way)
    @rule(which=st.randoms(use_true_random=False), well=st.booleans())
    def end(self, which: Random, well: bool) -> None:
        key = which.choice(sorted(self.under_way))
        future = self.under_way.pop(key)
        if well:
            future.set_result(row(key[2]))
        else:
            future.set_exception(ValueError("no"))

    @invariant()
    def what_is_done_fits(self) -> None:
        self.memo.check_integrity()
        assert self.memo.nbytes <= max(KEPT, len(self.under_way)) * ONE

    @invariant()
    def every_question_is_counted(self) -> None:
        assert sum(astuple(self.memo.counts)[:3]) == self.claims


Interleaved.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestInterleaved = Interleaved.TestCase


def test_a_text_is_encoded_once_while_it_is_kept() -> None:
    kept = memo()
    assert fill(kept, "alpha", "beta", "alpha") == [0, 1]
    assert fill(kept, "beta", "gamma", "alpha") == [1]
    assert kept.counts == MemoCounts(hits=2, joined=1, misses=3)


def test_salts_kinds_and_fingerprints_are_apart() -> None:
    kept = memo()
    assert fill(kept, "alpha") == [0]
    assert fill(kept, "alpha", salt="other") == [0]
    assert fill(kept, "alpha", kind="canonical") == [0]
    assert fill(kept, "alpha") == fill(kept, "alpha", salt="other") == fill(kept, "alpha", kind="canonical") == []
    assert memo(fingerprint="two")._key("", "fast", "alpha") != kept._key("", "fast", "alpha")


def test_no_concatenation_of_salt_and_text_is_taken_for_another() -> None:
    kept = memo()
    assert fill(kept, "x", salt="fast") == [0]
    assert fill(kept, "fastx", salt="") == [0]


def test_work_under_way_is_waited_for_and_never_dropped() -> None:
    kept = memo(entries=1)
    futures, new = kept.claim("", "fast", ["alpha", "beta", "gamma"])
    assert new == [0, 1, 2]
    again, none = kept.claim("", "fast", ["gamma", "beta", "alpha"])
    assert none == []
    assert [id(future) for future in again] == [id(future) for future in reversed(futures)]
    assert kept.counts.joined == 3
    for text, future in zip(("alpha", "beta", "gamma"), futures, strict=True):
        future.set_result(row(text))
    assert kept.nbytes == ONE
    assert (again[0].result() == row("gamma")).all()


def test_the_least_recently_used_goes_first() -> None:
    kept = memo(entries=2)
    fill(kept, "alpha", "beta")
    fill(kept, "alpha")
    fill(kept, "gamma")
    assert fill(kept, "alpha", "gamma") == []
    assert kept.counts.evicted == 1
    assert fill(kept, "beta") == [0]


def test_a_memo_without_room_keeps_nothing_and_answers_all_the_same() -> None:
    kept = memo(entries=0)
    assert fill(kept, "alpha") == fill(kept, "alpha") == [0]
    assert kept.nbytes == 0


def test_a_text_whose_work_failed_is_forgotten_and_its_neighbours_are_not() -> None:
    kept = memo()
    futures, _ = kept.claim("", "fast", ["alpha", "beta"])
    futures[0].set_exception(ValueError("no"))
    assert kept.nbytes == ONE
    futures[1].set_result(row("beta"))
    assert fill(kept, "alpha", "beta") == [0]


def test_a_failure_that_is_not_forgotten_yet_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = memo()
    with monkeypatch.context() as before_it_is_forgotten:
        before_it_is_forgotten.setattr(kept, "_done", lambda *_: None)
        (failing,), _ = kept.claim("", "fast", ["alpha"])
        failing.set_exception(ValueError("no"))
    assert fill(kept, "alpha") == [0]
    assert fill(kept, "alpha") == []


@pytest.mark.parametrize("attempt", range(20))
def test_whoever_saw_work_fail_and_asks_again_at_once_gets_new_work(attempt: int) -> None:
    kept = memo()
    (failing,), _ = kept.claim("", "fast", ["alpha"])
    new: list[int] = []

    def ask_again() -> None:
        failing.exception()
        new.extend(kept.claim("", "fast", ["alpha"])[1])

    waiting = [Thread(target=ask_again) for _ in range(4)]
    for thread in waiting:
        thread.start()
    failing.set_exception(ValueError("no"))
    for thread in waiting:
        thread.join()
    assert new == [0], "one of them has to do it, and one alone"
    kept.check_integrity()
