"""Windows that are named to the encoder before they are asked about: a wrong guess costs time, never bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lam_vllm import Compactor, CompactorConfig, compactor
from lam_vllm.ahead import LEAST_NEW_CHARACTERS, windows_ahead
from lam_vllm.config import Profile
from lam_vllm.encoders.base import Encoded, OnePass
from lam_vllm.encoders.request import RequestEncoder
from lam_vllm.evaluation.corpus import Run
from lam_vllm.lines import cut_text
from lam_vllm.ops.arrays import HOST
from lam_vllm.stopwatch import Stopwatch
from lam_vllm.types import Embedding
from lam_vllm.windows import fixed_windows, line_windows
from tests.core.chats import GIANT, BagOfWords, chats, texts

LISTING = "\n".join(f"line number {number} of a listing that goes on" for number in range(8))
PROFILES: tuple[Profile, ...] = ("guarded", "paper")


class Asked:
    """`Embeddings` that keep what they were told of early, and what was then asked for."""

    guard_band = 0.0
    arrays = HOST

    def __init__(self) -> None:
        self.encoded = Encoded()
        self.named: list[str] = []
        self.asked: list[str] = []
        self._encode = BagOfWords().encode

    def prepare(self, texts: Sequence[str]) -> None:
        self.named += texts

    def embed(self, text: str) -> Embedding:
        self.asked.append(text)
        return self._encode(text)

    canonical = embed


class AskedBag(BagOfWords):
    """An embedder of which one compaction can be watched."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings_of: list[Asked] = []

    def embeddings(self, salt: str, *, canonical_only: bool = False, background: bool = False) -> Asked:
        self.embeddings_of.append(Asked())
        return self.embeddings_of[-1]


def request_encoder() -> RequestEncoder:
    return RequestEncoder(BagOfWords(), Stopwatch(), "")


def cut(text: str, windows: Callable[..., Any]) -> list[str]:
    bag = BagOfWords()
    return [text[window.start : window.end] for window in windows(text, bag.token_offsets, bag.window_tokens)]


@settings(deadline=None)
@given(st.lists(texts(), max_size=4))
def test_the_paper_looks_at_every_window_in_order(results: list[str]) -> None:
    every = [window for text in results for window in cut(text, fixed_windows)]
    assert windows_ahead(results, "paper", request_encoder()) == every


@settings(deadline=None)
@given(st.lists(texts(), max_size=4), st.sets(st.sampled_from(LISTING.split("\n"))))
def test_guarded_names_windows_of_lines_in_order_and_no_other(results: list[str], seen: set[str]) -> None:
    every = iter(window for text in results if cut_text(text)[1] == "line" for window in cut(text, line_windows))
    assert all(window in every for window in windows_ahead(results, "guarded", request_encoder(), seen))


def test_a_window_of_lines_that_were_shown_is_not_named() -> None:
    encoder = request_encoder()
    windows = cut(LISTING, line_windows)
    assert len(windows) == 2
    assert windows_ahead([LISTING], "guarded", encoder) == windows
    assert windows_ahead([LISTING, LISTING], "guarded", encoder) == windows
    assert windows_ahead([LISTING], "guarded", encoder, seen=LISTING.split("\n")) == []
    assert windows_ahead([LISTING], "guarded", encoder, seen=LISTING.split("\n")[:4]) == windows[-1:]


def test_a_window_with_too_little_that_is_new_is_not_named() -> None:
    least = "x" * LEAST_NEW_CHARACTERS
    assert windows_ahead([least], "guarded", request_encoder()) == [least]
    assert windows_ahead([least[1:]], "guarded", request_encoder()) == []


def test_text_that_is_cut_in_parts_of_lines_is_left_to_exact() -> None:
    assert cut_text(GIANT)[1] == "part"
    assert windows_ahead([GIANT], "guarded", request_encoder()) == []
    assert windows_ahead([GIANT], "paper", request_encoder())


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("guess", [[], ["never asked about"] * 3])
@settings(max_examples=25, deadline=None, suppress_health_check=[*HealthCheck])
@given(messages=chats(opaque=False))
def test_a_wrong_guess_changes_no_answer(profile: Profile, guess: list[str], messages: list[dict[str, Any]]) -> None:
    config = CompactorConfig(profile=profile, min_tokens=4)
    plain = Compactor(config, len, BagOfWords()).compact(messages)
    bag = AskedBag()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compactor, "windows_ahead", lambda *_: guess)
        guessed = Compactor(config, len, bag).compact(messages)
    assert (guessed.messages, guessed.decisions) == (plain.messages, plain.decisions)


@pytest.mark.parametrize("profile", PROFILES)
def test_what_a_recorded_run_is_asked_about_is_named_before(profile: Profile, six_runs: list[Run]) -> None:
    asked = named = 0
    for run in six_runs:
        bag = AskedBag()
        Compactor(CompactorConfig(profile=profile), lambda text: len(text) // 4, bag).compact(run.messages)
        (embeddings,) = bag.embeddings_of
        assert set(embeddings.asked) <= set(embeddings.named)
        asked += len(set(embeddings.asked))
        named += len(set(embeddings.named))
    assert asked > 100
    assert asked >= 0.7 * named, "few are named for nothing"


def test_an_encoder_that_cannot_work_ahead_is_named_nothing() -> None:
    encoder = request_encoder()
    assert not encoder.works_ahead
    assert isinstance(encoder.prepare.__self__, OnePass)  # type: ignore[attr-defined]
    assert RequestEncoder(AskedBag(), Stopwatch(), "").works_ahead
    assert not RequestEncoder(AskedBag(), Stopwatch(), "", canonical=True).works_ahead
