"""One encoder for many compactions at once: embeddings have the bits of the way asked for, failures stay apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier, Event, active_count
from time import sleep

import numpy as np
import pytest

from lam_vllm.encoders.base import BatchEncoder, Embedder, Encoder, Pass, traits_of
from lam_vllm.encoders.pool import EncoderPool
from lam_vllm.encoders.two_pass import FastPass
from lam_vllm.errors import EncoderError
from lam_vllm.windows import fixed_windows
from tests.conftest import ROOT
from tests.core.fake_encoders import TwoPassBag, noisy_pass, nothing

WORDS = [f"window number {number} of a result" for number in range(40)]


@contextmanager
def pool_of(
    bag: TwoPassBag, fast: FastPass | None = None, threads: int = 1, memo_bytes: int = 1_000_000
) -> Iterator[EncoderPool]:
    pool = EncoderPool(bag, fast or noisy_pass(bag.noise), threads, memo_bytes)
    try:
        yield pool
    finally:
        pool.close()


class Gate:
    """Holds every call of the encoder until it is opened."""

    def __init__(self) -> None:
        self.entered, self.open = Event(), Event()

    def __call__(self, _texts: Sequence[str]) -> None:
        self.entered.set()
        assert self.open.wait(10)


def refuse(word: str) -> Callable[[Sequence[str]], None]:
    """Raises for a call in which one text holds this word."""

    def before(texts: Sequence[str]) -> None:
        if any(word in text for text in texts):
            raise EncoderError(f"no {word}")

    return before


def test_it_is_an_encoder_and_an_embedder() -> None:
    bag = TwoPassBag()
    with pool_of(bag) as pool:
        encoder: Encoder = pool
        assert isinstance(encoder, Embedder)
        assert (encoder.fingerprint, encoder.dimension, encoder.window_tokens) == ("bag of words", 64, 40)
        assert encoder.encode("a b").tobytes() == TwoPassBag().encode("a b").tobytes()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("batch", [1, 3, 8])
def test_each_embedding_is_of_the_way_that_was_asked_for(threads: int, batch: int) -> None:
    bag = TwoPassBag()
    with pool_of(bag, noisy_pass(bag.noise, batch), threads) as pool:
        embeddings = pool.embeddings("")
        embeddings.prepare(WORDS)
        canonical = {text: embeddings.canonical(text) for text in WORDS[::5]}
        fast = {text: embeddings.embed(text) for text in WORDS}
    exact = {text: TwoPassBag().encode(text) for text in WORDS}
    assert all(canonical[text].tobytes() == exact[text].tobytes() for text in canonical)
    apart = [np.linalg.norm(fast[text] - exact[text]) for text in WORDS]
    assert min(apart) > 0
    assert max(apart) <= 2 * bag.noise
    assert max(bag.batches) <= batch
    assert (sum(bag.fast.values()), sum(bag.canonical.values())) == (len(WORDS), len(canonical))
    assert (embeddings.encoded.once, embeddings.encoded.again) == (len(WORDS), len(canonical))


def test_how_far_its_embeddings_may_be_from_canonical_is_known() -> None:
    bag = TwoPassBag()
    with pool_of(bag) as pool:
        assert traits_of(pool).embedding_error == noisy_pass(bag.noise).embedding_error > 0
        apart = [np.linalg.norm(pool.embeddings("").embed(text) - pool.encode(text)) for text in WORDS]
        assert 0 < max(apart) <= traits_of(pool).embedding_error
        assert traits_of(bag).embedding_error == 0.0
    with pool_of(bag, FastPass(bag.passes()[0], 0.0, {}, "made")) as pool:
        assert traits_of(pool).embedding_error == 0.0


def test_a_way_that_is_canonical_encodes_each_text_once_and_by_itself() -> None:
    bag = TwoPassBag()
    with pool_of(bag, FastPass(bag.passes()[0], 0.0, {}, "made")) as pool:
        embeddings = pool.embeddings("")
        embeddings.prepare(WORDS)
        for text in WORDS:
            assert embeddings.canonical(text) is embeddings.embed(text)
    assert bag.fast == {}
    assert bag.canonical == dict.fromkeys(WORDS, 1)


@pytest.mark.parametrize("canonical_way", [False, True])
def test_canonical_only_means_that_nothing_is_embedded_in_another_way(canonical_way: bool) -> None:
    bag = TwoPassBag()
    way = FastPass(bag.passes()[0], 0.0, {}, "made") if canonical_way else None
    with pool_of(bag, way, threads=2) as pool:
        embeddings = pool.embeddings("", canonical_only=True)
        assert embeddings.guard_band == 0.0
        embeddings.prepare(WORDS)
        for text in WORDS:
            assert embeddings.embed(text).tobytes() == TwoPassBag().encode(text).tobytes()
            assert embeddings.canonical(text) is embeddings.embed(text)
        assert (bag.fast, bag.canonical) == ({}, dict.fromkeys(WORDS, 1))
        assert (embeddings.encoded.once, embeddings.encoded.again) == (len(WORDS), 0)
        pool.embeddings("").canonical(WORDS[0])
    assert bag.canonical[WORDS[0]] == 1, "remembered for those who ask in both ways"


def test_what_is_asked_for_in_the_background_comes_after_every_request() -> None:
    gate, order = Gate(), list[str]()

    def before(texts: Sequence[str]) -> None:
        order.extend(texts)
        gate(texts)

    bag = TwoPassBag(before=before)
    with pool_of(bag, noisy_pass(bag.noise, 1)) as pool:
        behind = pool.embeddings("", background=True)
        behind.prepare(WORDS[:3])
        assert gate.entered.wait(10)
        request = pool.embeddings("")
        request.prepare([300 * word for word in WORDS[5:10]])  # no small one, which would go first anyway
        gate.open.set()
        behind.embed(WORDS[0])  # the last: of like ones the youngest comes first
    assert [len(text) > 1_000 for text in order] == [False, *[True] * 5, False, False]


def test_no_text_is_encoded_twice_for_one_salt_whoever_asks() -> None:
    bag = TwoPassBag()
    with pool_of(bag, threads=2) as pool, ThreadPoolExecutor(16) as requests:

        def ask(number: int) -> list[bytes]:
            embeddings = pool.embeddings(f"salt {number % 2}")
            embeddings.prepare(WORDS[number:])
            return [embeddings.embed(text).tobytes() for text in WORDS[number:]]

        answers = list(requests.map(ask, range(16)))
    assert set(bag.fast.values()) == {1, 2}
    assert all(bag.fast[text] == 2 for text in WORDS[1:])
    for salt in (0, 1):
        assert all(answer == answers[salt][-len(answer) :] for answer in answers[salt::2])


def test_what_was_asked_for_once_is_kept_for_the_compaction_even_where_the_memo_has_no_room() -> None:
    bag = TwoPassBag()
    with pool_of(bag, memo_bytes=0) as pool:
        embeddings = pool.embeddings("")
        embeddings.prepare(WORDS)
        assert [embeddings.embed(text) is embeddings.embed(text) for text in WORDS] == [True] * len(WORDS)
        assert set(bag.fast.values()) == {1}
        assert pool.memo.nbytes == 0


def test_only_those_who_wait_for_a_text_that_fails_get_its_error() -> None:
    gate = Gate()
    failing = refuse("broken")

    def before(texts: Sequence[str]) -> None:
        gate(texts)
        failing(texts)

    bag = TwoPassBag(before=before)
    with pool_of(bag, noisy_pass(bag.noise, 8)) as pool:
        first, ill, well = (pool.embeddings(salt) for salt in ("first", "ill", "well"))
        first.prepare(["the encoder is busy with this"])
        assert gate.entered.wait(10)
        ill.prepare(["a broken text here", "a good text is here"])
        well.prepare(["another good text", "and a good one more"])
        gate.open.set()
        assert well.embed("another good text").shape == well.embed("and a good one more").shape == (64,)
        assert ill.embed("a good text is here").shape == (64,)
        for _ in range(2):
            with pytest.raises(EncoderError, match="no broken"):
                ill.embed("a broken text here")
        assert max(bag.batches, default=1) == 1, "those that shared the batch were encoded alone"


def test_after_a_failure_the_next_request_is_encoded_anew() -> None:
    bag = TwoPassBag(before=refuse("window"))
    with pool_of(bag) as pool:
        for ask in (pool.embeddings("").embed, pool.embeddings("").canonical, pool.encode):
            with pytest.raises(EncoderError, match="no window"):
                ask(WORDS[0])
        bag.before = nothing
        assert pool.embeddings("").embed(WORDS[0]).shape == pool.encode(WORDS[0]).shape == (64,)


def test_threads_are_as_many_as_asked_for_and_work_at_the_same_time() -> None:
    for count in (1, 2, 3):
        together = Barrier(count)
        bag = TwoPassBag(before=lambda _texts, meet=together: meet.wait(10))  # type: ignore[misc]
        before = active_count()
        with pool_of(bag, noisy_pass(bag.noise, 1), count) as pool:
            assert active_count() == before + count
            embeddings = pool.embeddings("")
            embeddings.prepare(WORDS[: 4 * count])
            for text in WORDS[: 4 * count]:
                embeddings.embed(text)
        assert bag.threads == {f"lam-encoder-{number}" for number in range(count)}
        assert active_count() == before


def test_a_small_request_goes_before_a_large_one_and_before_an_audit() -> None:
    gate = Gate()
    order: list[str] = []

    def before(texts: Sequence[str]) -> None:
        gate(texts)
        order.extend(texts)

    bag = TwoPassBag(before=before)
    with pool_of(bag, noisy_pass(bag.noise, 1)) as pool, ThreadPoolExecutor(1) as audits:
        pool.embeddings("large").prepare([200 * word for word in WORDS])
        assert gate.entered.wait(10)
        audit = audits.submit(pool.encode, "a window of the audit")
        while len(pool._queue._ring) < 2:
            sleep(0.001)
        small = pool.embeddings("small")
        small.prepare(["a small request", "two windows"])
        gate.open.set()
        assert small.embed("two windows").shape == audit.result(10).shape == (64,)
    assert set(order[1:3]) == {"a small request", "two windows"}
    assert order[3] in [200 * word for word in WORDS]
    assert order[4] == "a window of the audit"


def test_closing_fails_whoever_waits_and_whoever_comes_later() -> None:
    gate = Gate()
    bag = TwoPassBag(before=gate)
    pool = EncoderPool(bag, noisy_pass(bag.noise, 1))
    embeddings = pool.embeddings("")
    embeddings.prepare(WORDS[:3])
    assert gate.entered.wait(10)
    with ThreadPoolExecutor(1) as others:
        closing = others.submit(pool.close)
        with pytest.raises(RuntimeError, match="the encoder is closed"):
            embeddings.embed(WORDS[0])
        gate.open.set()
        closing.result(10)
    assert embeddings.embed(WORDS[2]).shape == (64,), "what was under way ends"
    for ask in (pool.encode, pool.embeddings("").embed, pool.embeddings("").canonical):
        with pytest.raises(RuntimeError, match="the encoder is closed"):
            ask("later")


def test_embeddings_keep_no_batch_alive() -> None:
    bag = TwoPassBag()
    with pool_of(bag, noisy_pass(bag.noise, 8)) as pool:
        assert all(pool.embeddings("").embed(text).base is None for text in WORDS[:8])


def test_the_real_encoder_gives_the_same_bits_whatever_else_is_encoded(encoder: BatchEncoder) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    cut = [text[window.start : window.end] for window in fixed_windows(text, encoder.token_offsets, 60)][:6]
    quickest = encoder.passes()[-1].precision
    way = Pass(f"{quickest} alone", quickest, 1)
    canonical = {window: encoder.encode(window).tobytes() for window in cut}
    alone = {window: encoder.encode_batch([window], way).tobytes() for window in cut}
    pool = EncoderPool(encoder, FastPass(way, 0.01, {}, "made"), threads=2)
    embeddings = pool.embeddings("")
    embeddings.prepare(cut)
    again = {window: embeddings.canonical(window).tobytes() for window in reversed(cut)}
    fast = {window: embeddings.embed(window).tobytes() for window in cut}
    pool.close()
    assert (again, fast) == (canonical, alone)
