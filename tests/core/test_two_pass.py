"""The fast pass: which one is chosen, how far it may be from canonical, and that its band changes no answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from time import sleep
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lam_vllm import Compactor, CompactorConfig
from lam_vllm.config import Profile
from lam_vllm.encoders.base import BatchEncoder, Pass
from lam_vllm.encoders.pool import EncoderPool
from lam_vllm.encoders.two_pass import (
    MARGIN_COS,
    MARGIN_L2,
    SAFETY_FACTOR,
    SAMPLE_WINDOWS,
    band_around,
    choose_pass,
    encode_all,
    measure_band,
    measure_difference,
    sample_windows,
    widened,
)
from lam_vllm.evaluation.corpus import Run
from lam_vllm.types import Compaction, Embedding
from lam_vllm.windows import fixed_windows
from tests.core.chats import BagOfWords, chats
from tests.core.fake_encoders import TwoPassBag, noisy_pass

TEXTS = [f"{'word ' * (number % 7)}number {number}" for number in range(10)]
PROFILES = pytest.mark.parametrize("profile", ["guarded", "paper"])


class Paced(TwoPassBag):
    """Sleeps in one of its ways, so that the other is the quicker one by far."""

    def __init__(self, slow: str) -> None:
        super().__init__()
        self._slow = slow

    def passes(self) -> Sequence[Pass]:
        return [Pass("alone", "exact", 1, canonical=True), Pass("noisy", "noisy", 4)]

    def encode_batch(self, texts: Sequence[str], way: Pass) -> Embedding:
        if way.precision == self._slow:
            sleep(0.01)
        if way.canonical:
            return np.stack([self.encode(text) for text in texts])
        return super().encode_batch(texts, way)


def test_the_quickest_way_is_chosen_and_the_reason_says_what_was_compared() -> None:
    fast = choose_pass(Paced("exact"), TEXTS)
    assert fast.way.label == "noisy"
    assert set(fast.tokens_per_second) == {"alone", "noisy"}
    assert fast.tokens_per_second["noisy"] > fast.tokens_per_second["alone"]
    assert fast.reason.startswith("noisy: the quickest here (tokens per second of one thread: alone ")
    slow = choose_pass(Paced("noisy"), TEXTS, least_band=0.5)
    assert (slow.way.label, slow.guard_band, slow.embedding_error) == ("alone", 0.0, 0.0)


def test_the_widest_batch_is_measured_full() -> None:
    class Wide(Paced):
        def passes(self) -> Sequence[Pass]:
            return [Pass("noisy", "noisy", 4), Pass("wide", "noisy", 32)]

    bag = Wide("exact")
    choose_pass(bag, [f"number {number}" for number in range(40)])
    assert max(bag.batches[:-2]) == 32


def test_the_band_is_a_multiple_of_what_was_measured_and_no_narrower_than_one_from_elsewhere() -> None:
    bag = Paced("exact")
    measured = measure_difference(bag, bag.passes()[1], TEXTS)
    fast, wide = choose_pass(bag, TEXTS), choose_pass(bag, TEXTS, least_band=0.5)
    assert fast.guard_band == band_around(measured.cosine) == SAFETY_FACTOR * measured.cosine + MARGIN_COS
    assert fast.embedding_error == SAFETY_FACTOR * measured.l2 + MARGIN_L2
    assert wide.guard_band == 0.5
    assert wide.embedding_error == pytest.approx(fast.embedding_error * 0.5 / fast.guard_band)
    assert widened(fast, fast.guard_band) == fast == widened(fast, 0.0)


@pytest.mark.parametrize("noise", [0.0, 1e-3, 0.05])
def test_the_largest_difference_over_all_pairs_is_measured(noise: float) -> None:
    bag, way = TwoPassBag(noise), Pass("noisy", "noisy", 1)
    fast = {text: bag.noisy(text, text).astype(np.float64) for text in TEXTS}
    exact = {text: BagOfWords().encode(text).astype(np.float64) for text in TEXTS}
    largest = max(
        max(abs(fast[one] @ fast[two] - exact[one] @ exact[two]), abs(fast[one] @ exact[two] - exact[one] @ exact[two]))
        for one in TEXTS
        for two in TEXTS
    )
    found = measure_difference(bag, way, TEXTS)
    assert found.cosine == measure_band(bag, way, TEXTS) == pytest.approx(largest, abs=1e-12)
    assert found.l2 == pytest.approx(max(np.linalg.norm(fast[text] - exact[text]) for text in TEXTS), abs=1e-12)
    assert largest <= noisy_pass(noise).guard_band and found.l2 <= noisy_pass(noise).embedding_error


def test_the_error_that_was_measured_on_some_windows_holds_for_others(
    encoder: BatchEncoder, six_runs: list[Run]
) -> None:
    results = [str(message["content"]) for run in six_runs for message in run.messages if message["role"] == "tool"]
    cut = [text[: fixed_windows(text, encoder.token_offsets, encoder.window_tokens)[0].end] for text in results if text]
    for way in (way for way in encoder.passes() if not way.canonical):
        some, others = (measure_difference(encoder, way, texts) for texts in (cut[:8], cut[8:24]))
        assert 0 < others.l2 <= SAFETY_FACTOR * some.l2 + MARGIN_L2


@settings(deadline=None)
@given(st.permutations(TEXTS), st.integers(1, 12))
def test_rows_come_in_the_order_of_the_texts_and_batches_by_length(texts: list[str], batch: int) -> None:
    bag = TwoPassBag(noise=0.0)
    rows = encode_all(bag, Pass("noisy", "noisy", batch), texts)
    assert np.allclose(rows, [BagOfWords().encode(text) for text in texts], atol=1e-6)
    assert max(bag.batches) <= batch
    assert len(bag.batches) == -(-len(texts) // batch)


def test_the_sample_is_windows_of_many_kinds_of_the_packages_own_files(encoder: BatchEncoder) -> None:
    windows = sample_windows(encoder)
    assert len(windows) == len(set(windows)) == SAMPLE_WINDOWS
    counts = [len(encoder.token_offsets(window)) for window in windows]
    assert max(counts) <= encoder.window_tokens
    assert sum(count > 400 for count in counts) >= SAMPLE_WINDOWS // 4
    assert sum(count < 200 for count in counts) >= SAMPLE_WINDOWS // 3
    assert sum("def " in window for window in windows) >= 6


@cache
def tokens(text: str) -> int:
    return len(text.split())


def same(one: Compaction, other: Compaction) -> bool:
    """Whether everything that the messages decide is equal."""
    figures = ("removed_tokens", "stub_tokens", "boundary_pairs", "reasons", "observations", "prefix_digest")
    return (one.messages, one.decisions) == (other.messages, other.decisions) and all(
        getattr(one.report, figure) == getattr(other.report, figure) for figure in figures
    )


def both_ways(
    messages: list[dict[str, Any]], profile: Profile, bag: TwoPassBag, batch: int, threshold_cos: float = 0.8
) -> tuple[Compaction, Compaction]:
    """A chat compacted with canonical embeddings alone, and in two passes."""
    config = CompactorConfig(profile=profile, threshold_cos=threshold_cos, min_tokens=4)
    canonical = Compactor(config, tokens, BagOfWords()).compact(messages)
    pool = EncoderPool(bag, noisy_pass(bag.noise, batch))
    try:
        return canonical, Compactor(config, tokens, pool).compact(messages)
    finally:
        pool.close()


@PROFILES
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    messages=chats(opaque=False),
    noise=st.sampled_from((0.0, 1e-4, 0.01, 0.1, 0.5)),
    batch=st.sampled_from((1, 3, 16)),
    threshold_cos=st.sampled_from((0.6, 0.8, 0.95, 1.0)),
    together=st.booleans(),
)
def test_the_answer_is_the_canonical_one_whatever_the_fast_pass_does_within_its_band(
    profile: Profile, messages: list[dict[str, Any]], noise: float, batch: int, threshold_cos: float, together: bool
) -> None:
    canonical, fast = both_ways(messages, profile, TwoPassBag(noise, together=together), batch, threshold_cos)
    assert same(fast, canonical)
    distances = fast.report.distances
    assert len(distances) == sum(decision.layer == "l1" for decision in fast.decisions)
    exact = canonical.report.distances
    assert all(bound >= distance - 1e-9 for bound, distance in zip(distances, exact, strict=True))
    assert max(distances, default=0.0) <= fast.report.delta


def near_chat(words: Callable[[int], str], results: int) -> list[dict[str, Any]]:
    """A chat whose tool results are these, one a turn."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for number in range(results):
        messages += [{"role": "assistant", "content": "on"}, {"role": "tool", "content": words(number)}]
    return messages


def drifting(number: int) -> str:
    """Thirty words, of which another two are new each time."""
    return " ".join(f"word{place if place >= 2 * number else 100 * number + place}" for place in range(30))


@pytest.mark.parametrize(("noise", "together"), [(0.02, False), (0.02, True), (0.4, True)])
def test_a_close_decision_is_settled_by_canonical_embeddings_and_a_clear_one_is_not(
    noise: float, together: bool
) -> None:
    messages = near_chat(drifting, 8)
    bag = TwoPassBag(noise, together=together)
    canonical, fast = both_ways(messages, "paper", bag, 1)
    assert same(fast, canonical)
    assert 0 < sum(bag.canonical.values()) < 2 * len(bag.fast)
    assert set(bag.canonical.values()) == {1}
    clear = TwoPassBag(noise=0.0)
    both_ways([*messages[:3], *near_chat(lambda _: "alpha beta gamma", 1)[1:]], "paper", clear, 1)
    assert clear.canonical == {}


def test_a_band_that_is_too_narrow_changes_an_answer_so_that_these_tests_can_fail() -> None:
    messages = near_chat(drifting, 12)
    config = CompactorConfig(profile="paper", threshold_cos=0.8, min_tokens=4)
    canonical = Compactor(config, tokens, BagOfWords()).compact(messages)
    bag = TwoPassBag(noise=1.0)
    fast = noisy_pass(1.0, 1)
    pool = EncoderPool(bag, type(fast)(fast.way, 1e-6, fast.tokens_per_second, fast.reason))
    narrow = Compactor(config, tokens, pool)
    assert not same(narrow.compact(messages), canonical)
    assert same(narrow.compact(messages, canonical=True), canonical)
    pool.close()


@PROFILES
def test_at_one_nothing_but_identical_vectors_and_identical_text_is_a_match(profile: Profile) -> None:
    one = " ".join(f"alpha{place} beta{place}" for place in range(15))
    turned = " ".join(reversed(one.split()))  # another text with the very same vector
    other = one.replace("beta7", "gamma7")
    bag = TwoPassBag(noise=0.01)
    canonical, fast = both_ways(near_chat(lambda n: (one, other, turned, one)[n], 4), profile, bag, 1, 1.0)
    assert same(fast, canonical)
    texts = [message["content"] for message in fast.messages if message["role"] == "tool"]
    assert texts[:2] == [one, other]
    if profile == "paper":
        assert [decision.message for decision in fast.decisions if decision.layer == "l1"] == [6, 8]
        assert canonical.report.distances == fast.report.distances == (0.0, 0.0)
    assert texts[3] != one
