"""The contract of a compaction, over random chats: what holds for every profile, and what `exact` adds."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lam_vllm import Compactor, CompactorConfig, prefix_breaks, reconstruct
from lam_vllm.evaluation.evidence import distinct_lines
from lam_vllm.prices import MARGIN_TOKENS
from lam_vllm.stubs import holds_stub

from .chats import BagOfWords, OneShot, chats, shape

Make = Callable[[], Compactor]
relaxed = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def config_of(name: str) -> CompactorConfig:
    """`exact`, `guarded`, `paper`; with ` aliases` behind it: and short names for directories."""
    profile, _, aliases = name.partition(" ")
    return CompactorConfig.model_validate({"profile": profile, "directory_aliases": bool(aliases)})


CAREFUL = ("exact", "guarded", "exact aliases", "guarded aliases")


def maker(name: str, count_tokens: Callable[[str], int]) -> Make:
    config = config_of(name)
    encoder = None if config.profile == "exact" else BagOfWords()
    return lambda: Compactor(config, count_tokens, encoder)


@pytest.fixture(params=[*CAREFUL, "paper"], scope="module")
def make(request: pytest.FixtureRequest, count_tokens: Callable[[str], int]) -> Make:
    return maker(request.param, count_tokens)


@pytest.fixture(params=CAREFUL, scope="module")
def careful(request: pytest.FixtureRequest, count_tokens: Callable[[str], int]) -> Make:
    return maker(request.param, count_tokens)


@pytest.fixture(params=["exact", "exact aliases"], scope="module")
def exact(request: pytest.FixtureRequest, count_tokens: Callable[[str], int]) -> Compactor:
    return maker(request.param, count_tokens)()


@relaxed
@given(chats())
def test_every_prefix_is_emitted_as_it_was(make: Make, messages: list[Any]) -> None:
    assert prefix_breaks(make().compact, messages) == []


@relaxed
@given(chats(), st.data())
def test_a_memo_full_of_other_conversations_changes_no_byte(
    make: Make, messages: list[Any], data: st.DataObject
) -> None:
    compactor = make()
    fork = data.draw(st.integers(0, len(messages)))
    edited = [*messages[:fork], {"role": "tool", "content": "something else\n" * 3}, *messages[fork:]]
    deleted = messages[:fork] + messages[fork + 1 :]
    for conversation in (messages, edited, messages[:fork], deleted, messages):
        fresh = make().compact(conversation)
        warm = compactor.compact(conversation)
        assert (warm.messages, warm.decisions) == (fresh.messages, fresh.decisions)
        compactor._memo.check_integrity()


@relaxed
@given(chats(), st.lists(st.integers(1, 4), max_size=12))
def test_one_at_a_time_in_groups_or_all_at_once_gives_the_same_bytes(
    make: Make, messages: list[Any], groups: list[int]
) -> None:
    compactor, sent = make(), 0
    for group in [*groups, len(messages)]:
        sent = min(len(messages), sent + group)
        compaction = compactor.compact(messages[:sent])
    assert compaction.messages == make().compact(messages).messages


@relaxed
@given(chats())
def test_only_text_of_observations_changes_and_inputs_stay_as_they_were(make: Make, messages: list[Any]) -> None:
    before = copy.deepcopy([m for m in messages if not isinstance(m["content"], OneShot)])
    compaction = make().compact(messages)

    def observed(message: dict[str, Any]) -> bool:
        return bool(message["role"] == "tool")

    assert [m for m in messages if not isinstance(m["content"], OneShot)] == before
    assert shape(compaction.messages, observed) == shape(messages, observed)
    for given_, emitted in zip(messages, compaction.messages, strict=True):
        assert not (isinstance(given_["content"], OneShot) and given_["content"].read)
        assert emitted["content"] or not given_["content"]


@relaxed
@given(chats())
def test_what_removes_nothing_hands_on_the_same_object(make: Make, messages: list[Any]) -> None:
    compaction = make().compact(messages)
    touched = any(a is not b for a, b in zip(messages, compaction.messages, strict=True))
    assert (compaction.messages is messages) == (not touched)
    assert compaction.changed <= touched


@relaxed
@given(chats())
def test_every_observation_without_a_cut_has_a_reason(make: Make, messages: list[Any]) -> None:
    compaction = make().compact(messages)
    with_text = {d.message for d in compaction.decisions}
    silent = [
        i
        for i, m in enumerate(messages)
        if m["role"] == "tool" and isinstance(m["content"], str) and i not in with_text
    ]
    assert sum(compaction.report.reasons.values()) >= len(silent)


@relaxed
@given(chats(opaque=False))
def test_exact_gives_back_every_byte(exact: Compactor, messages: list[Any]) -> None:
    assert reconstruct(exact.compact(messages).messages) == messages


@relaxed
@given(chats(opaque=False), st.integers(0, 40), st.integers(1, 400))
def test_options_keep_the_round_trip(
    count_tokens: Callable[[str], int], messages: list[Any], min_tokens: int, reach: int
) -> None:
    config = CompactorConfig(
        profile="exact",
        min_tokens=min_tokens,
        max_reference_distance_tokens=reach,
        exclude_tools=("grep",),
        directory_aliases=reach % 2 == 0,
    )
    compactor = Compactor(config, count_tokens)
    assert reconstruct(compactor.compact(messages).messages) == messages
    assert prefix_breaks(compactor.compact, messages) == []


@relaxed
@given(chats(opaque=False))
def test_every_reference_saves_more_than_the_margin(careful: Make, messages: list[Any]) -> None:
    for decision in careful().compact(messages).decisions:
        assert decision.removed_tokens > decision.stub_tokens + MARGIN_TOKENS


@relaxed
@given(chats(opaque=False))
def test_no_result_becomes_longer(careful: Make, count_tokens: Callable[[str], int], messages: list[Any]) -> None:
    for given_, emitted in zip(messages, careful().compact(messages).messages, strict=True):
        if isinstance(given_["content"], str) and not holds_stub(given_["content"]):
            assert count_tokens(emitted["content"]) <= count_tokens(given_["content"])


@relaxed
@given(chats(), st.text(min_size=1, max_size=4), st.text(min_size=1, max_size=4))
def test_a_salt_is_not_the_beginning_of_a_text(
    count_tokens: Callable[[str], int], messages: list[Any], salt: str, start: str
) -> None:
    exact = Compactor(CompactorConfig(profile="exact"), count_tokens)
    whole = [{"role": "tool", "content": start + "text"}, *messages]
    rest = [{"role": "tool", "content": "text"}, *messages]
    exact.compact(whole, salt=salt)
    assert exact.compact(rest, salt=salt + start).report.work.known_messages == 0


@relaxed
@given(chats(opaque=False))
def test_guarded_and_exact_lose_no_distinct_line(careful: Make, messages: list[Any]) -> None:
    assert distinct_lines(messages, careful().compact(messages).messages).lost == ()


@relaxed
@given(chats(), st.text(max_size=3))
def test_no_hit_crosses_a_salt(count_tokens: Callable[[str], int], messages: list[Any], salt: str) -> None:
    exact = Compactor(CompactorConfig(profile="exact"), count_tokens)
    exact.compact(messages, salt="a" + salt)
    assert exact.compact(messages, salt="b" + salt).report.work.known_messages == 0
    assert exact.compact(messages, salt="b" + salt).report.work.known_messages == len(messages)
