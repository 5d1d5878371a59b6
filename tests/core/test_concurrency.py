"""One compactor used by many threads at once: the same answers, and memos whose books add up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Barrier, Lock
from typing import Any

import pytest

from lam_vllm import Compaction, Compactor, CompactorConfig
from lam_vllm.config import Profile
from lam_vllm.encoders.pool import EncoderPool
from lam_vllm.errors import EncoderError
from lam_vllm.evaluation.corpus import Run
from lam_vllm.prefix_memo import PrefixMemo
from tests.core.chats import BagOfWords
from tests.core.fake_encoders import TwoPassBag, noisy_pass

THREADS = 8
PROFILES = pytest.mark.parametrize("profile", ["exact", "guarded", "paper"])
Messages = list[Any]


def count_tokens(text: str) -> int:
    return len(text) // 4


def compactor(profile: Profile, encoder: Any, memo_bytes: int = 100_000_000) -> Compactor:
    config = CompactorConfig(profile=profile)
    return Compactor(config, count_tokens, None if profile == "exact" else encoder, memo=PrefixMemo(memo_bytes))


def histories(run: Run, draw: Random) -> list[Messages]:
    """Prefixes of a run, some with another end: what agents that fork one conversation send, in any order."""
    messages = list(run.messages)
    made: list[Messages] = []
    for number in range(3 * THREADS):
        end = draw.randrange(1, min(len(messages), 14) + 1)
        fork = [{"role": "tool", "content": f"another result {number % 5}\n" + str(messages[end - 1].get("content"))}]
        made.append(messages[:end] + (fork if draw.random() < 0.4 else []))
    return made


def at_once(ask: Callable[[Messages], Any], asked: Sequence[Messages]) -> list[Any]:
    """The answers of `ask`, by threads that begin together."""
    together = Barrier(THREADS)

    def work(place: int) -> list[Any]:
        together.wait(10)
        return [ask(messages) for messages in asked[place::THREADS]]

    with ThreadPoolExecutor(THREADS) as threads:
        parts = list(threads.map(work, range(THREADS)))
    return [parts[place % THREADS][place // THREADS] for place in range(len(asked))]


def expect_same(answers: Sequence[Compaction], asked: Sequence[Messages], plain: Compactor) -> None:
    for messages, answer in zip(asked, answers, strict=True):
        alone = plain.compact(messages, use_memo=False)
        assert (answer.messages, answer.decisions) == (alone.messages, alone.decisions)
        assert answer.report.removed_tokens == alone.report.removed_tokens


@PROFILES
@pytest.mark.parametrize("memo_bytes", [300_000, 100_000_000])
def test_forks_of_one_conversation_at_once_get_the_answers_of_each_alone(
    profile: Profile, memo_bytes: int, six_runs: list[Run]
) -> None:
    bag = TwoPassBag()
    pool = EncoderPool(bag, noisy_pass(bag.noise, 8), threads=2)
    shared = compactor(profile, pool, memo_bytes)
    for place, run in enumerate(six_runs[1:3]):
        asked = histories(run, Random(place))
        expect_same(at_once(shared.compact, asked), asked, compactor(profile, BagOfWords()))
        shared._memo.check_integrity()
        assert shared._memo._lent == set()
        assert shared.memo_bytes_used <= memo_bytes
    pool.memo.check_integrity()
    pool.close()


@PROFILES
def test_the_same_conversation_many_times_at_once(profile: Profile, six_runs: list[Run]) -> None:
    bag = TwoPassBag()
    pool = EncoderPool(bag, noisy_pass(bag.noise, 8), threads=2)
    shared, run = compactor(profile, pool), six_runs[0]
    asked = [list(run.messages[: 6 + 3 * (number // THREADS)]) for number in range(4 * THREADS)]
    answers = at_once(shared.compact, asked)
    expect_same(answers, asked, compactor(profile, BagOfWords()))
    assert set(bag.fast.values()) <= {1}
    shared._memo.check_integrity()
    known = shared.compact(asked[-1]).report.work.known_messages
    assert known == len(asked[-1]), "the memory that was put back last knows it"
    pool.close()


@pytest.mark.parametrize("profile", ["guarded", "paper"])
def test_warming_at_the_same_time_changes_no_answer_and_keeps_nothing(profile: Profile, six_runs: list[Run]) -> None:
    bag = TwoPassBag()
    pool = EncoderPool(bag, noisy_pass(bag.noise, 8), threads=2)
    shared, lock, turn = compactor(profile, pool), Lock(), iter(range(10_000))

    def warm_or_compact(messages: Messages) -> Compaction:
        with lock:
            number = next(turn)
        if number % 2:
            shared.warm(messages)
        if number % 3:
            shared.warm_text(str(messages[-1].get("content")))
        return shared.compact(messages)

    asked = histories(six_runs[1], Random(7))
    expect_same(at_once(warm_or_compact, asked), asked, compactor(profile, BagOfWords()))
    shared._memo.check_integrity()
    assert shared._memo._lent == set()
    encoded = bag.fast.total()
    for messages in asked:
        shared.warm(messages)
        assert shared.compact(messages, use_memo=False).report.work.encoder_calls == 0
    assert bag.fast.total() == encoded
    pool.close()


@pytest.mark.parametrize("profile", ["guarded", "paper"])
def test_an_encoder_that_fails_now_and_then_leaves_no_half_of_a_message(profile: Profile, six_runs: list[Run]) -> None:
    draw, lock = Random(3), Lock()

    def now_and_then(_texts: Sequence[str]) -> None:
        with lock:
            if draw.random() < 0.1:
                raise EncoderError("now and then")

    bag = TwoPassBag(before=now_and_then)
    pool = EncoderPool(bag, noisy_pass(bag.noise, 8), threads=2)
    shared, failures = compactor(profile, pool), []

    def until_it_works(messages: Messages) -> Compaction:
        while True:
            try:
                return shared.compact(messages)
            except EncoderError as error:
                failures.append(error)

    asked = histories(six_runs[0], Random(1))
    expect_same(at_once(until_it_works, asked), asked, compactor(profile, BagOfWords()))
    assert failures
    shared._memo.check_integrity()
    assert shared._memo._lent == set()
    pool.close()


def test_salts_share_nothing_however_many_ask_at_once(six_runs: list[Run]) -> None:
    bag = TwoPassBag()
    pool = EncoderPool(bag, noisy_pass(bag.noise, 8), threads=2)
    shared, messages = compactor("guarded", pool), list(six_runs[0].messages[:16])
    salts = iter(range(THREADS))
    lock = Lock()

    def ask(given: Messages) -> Compaction:
        with lock:
            salt = next(salts)
        return shared.compact(given, salt=f"tenant {salt}")

    answers = at_once(ask, [messages] * THREADS)
    assert {answer.report.work.known_messages for answer in answers} == {0}
    assert all(answer.report.work.encoder_calls == answers[0].report.work.encoder_calls > 0 for answer in answers)
    assert set(bag.fast.values()) == {THREADS}
    pool.close()
