"""What no compaction looked at can be found as well: short results, JSON in one line, what is left between cuts."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from threading import Event
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lam_vllm.compactor import Compactor
from lam_vllm.config import Profile, make_config
from lam_vllm.encoders.pool import EncoderPool
from lam_vllm.errors import EncoderError
from lam_vllm.index import Completer, PrefixWindows, build_index
from lam_vllm.index.gaps import LEAST_CHARACTERS
from lam_vllm.types import Embedding
from tests.core.chats import BagOfWords, chats
from tests.core.fake_encoders import TwoPassBag, noisy_pass
from tests.index.prefixes import EPS, compactor_of, windows_of

PROFILES: tuple[Profile, ...] = ("guarded", "paper")
SHORT = "No space left on device"
JSON = '{"passenger": "Omar Davis", "flights": [' + ", ".join(
    f'{{"number": "HAT{n}", "price": {n}}}' for n in range(40)
)
CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": "go"},
    {"role": "tool", "content": SHORT},
    {"role": "tool", "content": JSON},
    {"role": "tool", "content": "  \n ok \n"},
    {"role": "tool", "name": "read_earlier_result", "content": "what was asked to be seen again"},
    {"role": "user", "content": "what a user says is no tool output"},
]


class Failing(BagOfWords):
    """Fails with every text, or is busy until it is let go."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error
        self.entered, self.open = Event(), Event()

    def encode(self, text: str) -> Embedding:
        self.entered.set()
        if self.error is not None:
            raise self.error
        assert self.open.wait(30)
        return super().encode(text)


def few_tokens(profile: Profile, **options: int) -> Compactor:
    """A compactor to which a short result is not worth a look."""
    return Compactor(make_config({"profile": profile, **options}), lambda text: len(text) // 4, BagOfWords())


def completed(prefix: PrefixWindows) -> PrefixWindows:
    return Completer(BagOfWords()).complete("", prefix)


def content_of(messages: list[Any], message: int, part: int | None) -> str:
    content = messages[message]["content"]
    text: str = content if part is None else content[part]["text"]
    return text


@pytest.mark.parametrize("profile", PROFILES)
@given(chat=chats())
@settings(deadline=None, max_examples=50)
def test_whatever_is_in_the_prompt_is_in_one_window_and_rows_are_those_of_their_windows(
    profile: Profile, chat: list[Any]
) -> None:
    compactor = compactor_of(profile)
    kept: list[PrefixWindows] = []
    decisions = compactor.compact(chat, keep=kept.append).decisions
    (prefix,) = kept
    whole, encode = completed(prefix), BagOfWords().encode
    assert whole.uncovered == 0
    assert [each.row for each in whole.windows if each.distance is None] == list(range(len(whole.rows)))
    spans: dict[tuple[int, int | None], list[tuple[int, int]]] = {}
    for window in whole.windows:
        spans.setdefault((window.message, window.part), []).append((window.start, window.end))
        row = encode(content_of(chat, window.message, window.part)[window.start : window.end])
        apart = np.linalg.norm(row.astype(np.float64) - whole.rows[window.row].astype(np.float64))
        assert apart <= (window.distance or 0.0)
    for found in spans.values():
        assert all(one[1] <= other[0] for one, other in pairwise(found))
    for gap in prefix.gaps:
        assert gap.text == content_of(chat, gap.message, gap.part)
        gone = [each for each in decisions if (each.message, each.part) == (gap.message, gap.part)]
        assert all(each.end <= gap.start or gap.end <= each.start for each in gone)
        inside = [span for span in spans[gap.message, gap.part] if gap.start <= span[0] and span[1] <= gap.end]
        assert (inside[0][0], inside[-1][1]) == (gap.start, gap.end)
    for index, message in enumerate(chat):
        if message["role"] == "tool" and isinstance(message["content"], str):
            covered = spans.get((index, None), []) + [(d.start, d.end) for d in decisions if d.message == index]
            left = [
                character
                for place, character in enumerate(message["content"])
                if not any(start <= place < end for start, end in covered)
            ]
            runs = len(covered) + 1
            assert len("".join(left).strip()) < runs * LEAST_CHARACTERS + left.count("\n") + left.count(" ")


@pytest.mark.parametrize("profile", PROFILES)
@given(chat=chats(opaque=False), data=st.data())
@settings(deadline=None, max_examples=40)
def test_however_messages_arrive_an_index_has_the_same_bytes(
    profile: Profile, chat: list[Any], data: st.DataObject
) -> None:
    grown = compactor_of(profile)
    for length in sorted(data.draw(st.sets(st.integers(1, len(chat)), max_size=4))):
        before = build_index(completed(windows_of(grown, chat[:length])), EPS)
        alone = build_index(completed(windows_of(compactor_of(profile), chat[:length])), EPS)
        assert before.windows == alone.windows
        assert [each.data for each in before.segments if each] == [each.data for each in alone.segments if each]
    longer, shorter = completed(windows_of(grown, chat)), completed(windows_of(grown, chat[:-1]))
    assert longer.windows[: len(shorter.windows)] == shorter.windows
    assert longer.rows[: len(shorter.rows)].tobytes() == shorter.rows.tobytes()


@pytest.mark.parametrize("profile", PROFILES)
def test_a_short_result_and_json_in_one_line_are_found(profile: Profile) -> None:
    compactor = few_tokens(profile)
    found = compactor.search(CHAT, "space left on the device")
    assert (found.hits[0].text, found.hits[0].result, found.uncovered_characters) == (SHORT, 1, 0)
    json = next(hit for hit in compactor.search(CHAT, "passenger Omar Davis").hits if len(hit.text or "") > 20)
    assert (json.message, json.result) == (2, 2)
    assert json.text is not None
    assert JSON.startswith(json.text)
    assert {hit.message for hit in found.hits} - {3} == {1, 2}, "neither a user's text nor what was looked up again"


def test_no_more_than_the_cap_of_windows_is_embedded_and_the_rest_is_told() -> None:
    compactor = few_tokens("guarded", max_windows=2)
    encoder = BagOfWords()
    prefix = Completer(encoder).complete("", windows_of(compactor, CHAT))
    assert encoder.calls == 2
    assert [(each.message, each.start) for each in prefix.windows] == [(1, 0), (2, 0)]
    assert prefix.uncovered == len(JSON) - prefix.windows[1].end
    assert compactor.search(CHAT, "space").uncovered_characters == prefix.uncovered
    assert build_index(windows_of(compactor, CHAT), EPS).uncovered == len(SHORT) + len(JSON)


def test_what_is_not_wanted_any_more_is_left_out_and_told() -> None:
    prefix = windows_of(few_tokens("guarded"), CHAT)
    left = Completer(BagOfWords()).complete("", prefix, lambda: False)
    assert (left.windows, left.gaps, left.uncovered) == ((), (), len(SHORT) + len(JSON))


def test_an_encoder_that_fails_is_an_error_and_what_needs_none_is_not_asked_for() -> None:
    prefix = windows_of(few_tokens("guarded"), CHAT)
    completer = Completer(Failing(EncoderError("it is gone")))
    with pytest.raises(EncoderError):
        completer.complete("", prefix)
    assert completer.complete("", replace(prefix, gaps=())).windows == ()


def test_what_was_embedded_quickly_says_how_far_that_may_be_off_and_only_that() -> None:
    quick = noisy_pass(0.01)
    with closing(EncoderPool(TwoPassBag(0.01), quick)) as pool:
        prefix, completer = windows_of(few_tokens("guarded"), CHAT), Completer(pool)
        assert completer.complete("", prefix).embedding_error == quick.embedding_error > 0
        assert completer.complete("", replace(prefix, embedding_error=1.0)).embedding_error == 1.0
        assert completer.complete("", replace(prefix, gaps=())).embedding_error == 0.0
    assert completed(prefix).embedding_error == 0.0


def test_a_text_is_cut_once_however_often_it_comes_again() -> None:
    class Counting(BagOfWords):
        cut = 0

        def token_offsets(self, text: str) -> list[tuple[int, int]]:
            self.cut += 1
            return super().token_offsets(text)

    encoder = Counting()
    completer, prefix = Completer(encoder), windows_of(few_tokens("guarded"), CHAT)
    first = completer.complete("", prefix)
    cut = encoder.cut
    assert completer.complete("", prefix).windows == first.windows
    assert encoder.cut == cut > 0
