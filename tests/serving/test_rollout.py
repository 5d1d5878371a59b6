"""Whom the server's default applies to: a share of the conversations that never flips, and defaults of models."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lam_vllm.config import CompactorConfig
from lam_vllm.serving.box import RequestBox
from lam_vllm.serving.options import Options
from lam_vllm.serving.rollout import Rollout, in_canary
from lam_vllm.types import Message
from tests.serving.fakes import TEXT, RefusedError, Server, agent_messages

CONVERSATIONS = 2_000
EXACT = CompactorConfig(profile="exact")
REPEATED = agent_messages(TEXT, TEXT)


def opening(number: int) -> list[Message]:
    return [{"role": "system", "content": "You mend."}, {"role": "user", "content": f"Please mend number {number}."}]


def ask(server: Server, messages: Any, box: RequestBox | None = None, **fields: Any) -> Any:
    """What reached the renderer."""
    return asyncio.run(server.ask(messages, box, **fields))


def outcomes(server: Server) -> dict[str, float]:
    """Requests by outcome and reason, those that there were."""
    counted = server.service.metrics.counts("requests")
    return {key.partition("/")[2]: number for key, number in counted.items() if number}


contents = st.one_of(
    st.text(max_size=20),
    st.none(),
    st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=9)}), max_size=2),
)
before_the_answer = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "developer", "tool"]), "content": contents}),
    max_size=4,
)
after_it = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["assistant", "user", "tool"]), "content": contents}), max_size=6
)


@given(before_the_answer, after_it, st.floats(0, 1))
def test_a_conversation_never_flips(first: list[Message], later: list[Message], share: float) -> None:
    talk = [*first, {"role": "assistant", "content": "So."}, *later]
    decisions = {in_canary(talk[:end], share) for end in range(len(first), len(talk) + 1)}
    assert len(decisions) == 1


@given(before_the_answer, st.floats(0, 1), st.floats(0, 1))
def test_who_is_in_a_share_is_in_every_larger_one(first: list[Message], one: float, other: float) -> None:
    assert in_canary(first, min(one, other)) <= in_canary(first, max(one, other))


@given(before_the_answer)
def test_nobody_is_in_none_and_everybody_in_all(first: list[Message]) -> None:
    assert not in_canary(first, 0.0) and in_canary(first, 1.0)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9])
def test_the_share_is_that_of_fair_draws(share: float) -> None:
    inside = sum(in_canary(opening(number), share) for number in range(CONVERSATIONS))
    deviation = math.sqrt(CONVERSATIONS * share * (1 - share))
    assert abs(inside - CONVERSATIONS * share) < 4 * deviation


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_the_share_does_not_depend_on_what_else_samples_requests(share: float) -> None:
    """The salt and the turns take no part, so that two replicas and two tenants decide alike."""
    server, other = (Server(rollout=Rollout(share)) for _ in range(2))
    for number in range(40):
        ask(server, opening(number), cache_salt="a")
        ask(other, [*opening(number), *REPEATED[1:]], RequestBox(api="messages", salt_header="b"))
    alone = [key for key in outcomes(server) if key.endswith("/canary")]
    assert alone == ["passed_through/canary"]
    assert outcomes(server)["passed_through/canary"] == outcomes(other)["passed_through/canary"]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_over_its_turns_a_conversation_is_compacted_from_the_first_on_or_not_at_all(number: int) -> None:
    server = Server(rollout=Rollout(0.5))
    talk = [*opening(number), *agent_messages(TEXT, TEXT, TEXT)[1:]]
    rendered = [ask(server, talk[:end]) for end in range(2, len(talk) + 1)]
    inside = in_canary(talk, 0.5)
    assert (rendered[-1] != talk) == inside
    assert ("passed_through/canary" in outcomes(server)) != inside
    assert all(messages == rendered[-1][: len(messages)] for messages in rendered)
    assert sum(server.service.metrics.counts("prefix_breaks").values()) == 0


def test_who_says_on_or_names_a_profile_is_served_whatever_the_share_and_who_says_how_alone_is_not() -> None:
    server = Server(rollout=Rollout(0.0))
    for unasked in ({}, {"lam": {"min_tokens": 8}}, {"lam": {"usage": True}}, {"vllm_xargs": {"lam_store": 0}}):
        assert ask(server, REPEATED, **unasked) is REPEATED
    for asked in ({"lam": True}, {"lam": {"profile": "exact"}}, {"vllm_xargs": {"lam_enabled": 1}}):
        assert ask(server, REPEATED, **asked) != REPEATED
    assert ask(server, REPEATED, RequestBox(options_header='{"profile": "exact"}')) != REPEATED
    assert outcomes(server) == {"passed_through/canary": 4, "changed/none": 4}
    with pytest.raises(RefusedError, match="bogus"):
        ask(server, REPEATED, lam={"bogus": 1})


def test_where_the_server_is_off_whoever_names_an_option_is_served_whatever_the_share() -> None:
    server = Server(mode="off", rollout=Rollout(0.0))
    assert ask(server, REPEATED, lam={"min_tokens": 8}) != REPEATED
    assert ask(server, REPEATED) is REPEATED
    assert outcomes(server) == {"changed/none": 1, "passed_through/off": 1}


def test_a_share_of_what_is_only_observed() -> None:
    server = Server(mode="observe", rollout=Rollout(0.0))
    assert ask(server, REPEATED) is REPEATED
    assert outcomes(server) == {"passed_through/canary": 1}
    watched = Server(mode="observe", rollout=Rollout(1.0))
    assert ask(watched, REPEATED) is REPEATED
    assert outcomes(watched) == {"observed/none": 1}


def test_the_switch_wins_over_the_share_and_over_who_asks() -> None:
    server = Server(rollout=Rollout(1.0, {"big": Options("on", EXACT, store=True)}))
    server.service.admission.switch.turn(False)
    for fields in ({}, {"lam": True}, {"model": "big"}):
        assert ask(server, REPEATED, **fields) is REPEATED
    assert outcomes(server) == {"passed_through/off": 3}
    server.service.admission.switch.turn(True)
    assert ask(server, REPEATED) != REPEATED


def test_switching_on_in_the_middle_of_a_conversation_breaks_its_prefix_once_and_is_counted() -> None:
    server = Server()
    talk = agent_messages(TEXT, TEXT, TEXT, TEXT)
    server.service.admission.switch.turn(False)
    ask(server, talk[:5])
    server.service.admission.switch.turn(True)
    for end in (7, 9):
        ask(server, talk[:end])
    breaks = server.service.metrics.counts("prefix_breaks")
    assert {cause: number for cause, number in breaks.items() if number} == {"config_changed": 1}


def test_each_model_has_its_own_default_and_a_request_of_another_the_servers() -> None:
    models = {
        "off": Options("off", EXACT, store=True),
        "watched": Options("observe", EXACT, store=True),
        "coarse": Options("on", CompactorConfig(profile="exact", min_tokens=9_000), store=True),
        "forgetful": Options("on", EXACT, store=False),
    }
    server = Server(rollout=Rollout(1.0, models))
    changed = {name: ask(server, REPEATED, model=name) != REPEATED for name in (*models, "unknown", "", None, 7)}
    assert [name for name, is_changed in changed.items() if is_changed] == ["forgetful", "unknown", "", None, 7]
    assert outcomes(server) == {
        "passed_through/off": 1,
        "observed/none": 1,
        "unchanged/below_min_tokens": 1,
        "changed/none": 5,
    }
    forgetful = Server(rollout=Rollout(1.0, models))
    ask(forgetful, REPEATED, model="forgetful")
    assert forgetful.service.handler.records.bytes_used == 0


def test_what_a_request_asks_for_goes_over_the_default_of_its_model() -> None:
    models = {"coarse": Options("on", CompactorConfig(profile="exact", min_tokens=9_000), store=True)}
    server = Server(mode="off", rollout=Rollout(0.0, models))
    assert ask(server, REPEATED, model="coarse", lam={"enabled": True, "min_tokens": 8}) != REPEATED
    assert ask(server, REPEATED, model="coarse") is REPEATED  # outside the share
    assert ask(server, REPEATED, model="other") is REPEATED  # off
    assert outcomes(server) == {"changed/none": 1, "passed_through/canary": 1, "passed_through/off": 1}
