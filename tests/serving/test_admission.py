"""The hook on a chat: what reaches vLLM, by options, switch, canary and what vLLM would do with it."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from lam_vllm.config import CompactorConfig
from lam_vllm.serving.admission import pass_through_reason
from lam_vllm.serving.box import RequestBox, report_header
from lam_vllm.serving.hook import install
from lam_vllm.serving.options import Options
from lam_vllm.serving.rollout import Rollout
from tests.serving.admitted import REPEATED, run
from tests.serving.fakes import TEXT, RefusedError, Server, agent_messages


def test_a_repeat_reaches_vllm_as_a_reference_and_the_given_messages_stay_as_they_were() -> None:
    server, given = Server(), copy.deepcopy(REPEATED)
    rendered = run(server, given)
    assert given == REPEATED
    assert rendered[:-1] == given[:-1]
    assert len(rendered[-1]["content"]) < 200
    assert server.counted("changed", "none") == 1


def test_where_nothing_is_removed_the_very_same_object_is_handed_on() -> None:
    server, given = Server(), agent_messages(TEXT)
    assert run(server, given) is given
    assert server.counted("unchanged", "no_repeat") == 1


@pytest.mark.parametrize("messages", [[{"role": "user", "content": "hello"}], []])
def test_a_chat_without_tool_results_says_so(messages: list[Any]) -> None:
    server = Server()
    assert run(server, messages) is messages
    assert server.counted("unchanged", "no_observation") == 1


def test_a_server_that_is_off_hands_the_object_on_and_computes_nothing() -> None:
    server, given = Server(mode="off"), copy.deepcopy(REPEATED)
    assert run(server, given) is given
    assert server.counted("passed_through", "off") == 1
    assert server.box.settled == []
    assert server.service.handler.compactors.memo_bytes() == {"prefix": 0, "embedding": 0}


def test_a_request_can_turn_a_server_on_that_is_off_and_off_that_is_on() -> None:
    off, on = Server(mode="off"), Server()
    assert run(off, REPEATED, lam=True) is not REPEATED
    assert run(off, REPEATED, RequestBox(options_header="true")) is not REPEATED
    assert run(off, REPEATED, vllm_xargs={"lam_enabled": 1}) is not REPEATED
    assert run(on, REPEATED, RequestBox(options_header="off"), lam=True) is REPEATED


def test_the_switch_wins_over_everything_a_request_says() -> None:
    server = Server()
    server.service.admission.switch.turn(False)
    assert run(server, REPEATED, RequestBox(options_header='{"bogus": 1}'), lam=True) is REPEATED
    assert server.counted("passed_through", "off") == 1


def test_observing_reports_and_changes_nothing() -> None:
    server = Server(mode="observe")
    assert run(server, REPEATED) is REPEATED
    (settled,) = server.box.settled
    assert settled.outcome == "observed"
    assert settled.original_tokens == settled.prefilled_tokens
    assert settled.report is not None
    assert settled.report.saved_tokens > 0
    assert server.service.handler.records.bytes_used == 0


@pytest.mark.parametrize(
    ("fields", "header", "name"),
    [
        ({"lam": {"min_tokens": -1}}, None, "lam.min_tokens"),
        ({"vllm_xargs": {"lam_bogus": 1}}, None, "vllm_xargs.lam_bogus"),
        ({}, '{"profile": "guarded"}', "x-lam.profile"),
    ],
)
def test_a_bad_option_is_vllms_own_validation_error_and_names_itself(
    fields: dict[str, Any], header: str | None, name: str
) -> None:
    server = Server()
    with pytest.raises(RefusedError, match=name):
        run(server, REPEATED, RequestBox(options_header=header), **fields)
    assert server.renderer.rendered == []
    assert server.counted("rejected", "none") == 1


PASSES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "unauthenticated": ({}, {"authorized": False}),
    "response_started": ({}, {"response_started": True}),
    "truncation": ({"truncate_prompt_tokens": 100}, {}),
    "token_reuse": ({"kv_transfer_params": {"prompt_token_ids": [1, 2]}}, {}),
}


@pytest.mark.parametrize("reason", PASSES)
def test_some_requests_reach_vllm_as_they_came(reason: str) -> None:
    server = Server()
    fields, box = PASSES[reason]
    assert run(server, REPEATED, RequestBox(**box), **fields) is REPEATED
    assert server.counted("passed_through", reason) == 1
    assert json.loads(report_header(server.box.settled))["reasons"] == {reason: 1}


@pytest.mark.parametrize(
    ("fields", "media", "reason"),
    [
        ({"truncation": "auto"}, False, "truncation"),
        ({"truncation": None}, False, "truncation"),
        ({"truncation": "disabled"}, False, None),
        ({"truncate_prompt_tokens": -1}, False, "truncation"),
        ({"truncate_prompt_tokens": None}, False, None),
        ({"kv_transfer_params": {"prompt_token_ids": [1]}, "echo": True}, False, None),
        ({"kv_transfer_params": {"prompt_token_ids": [1]}}, True, None),
        ({"kv_transfer_params": {"remote": 1}}, False, None),
    ],
)
def test_whether_vllm_would_cut_or_ignore_the_messages(fields: dict[str, Any], media: bool, reason: str | None) -> None:
    request = SimpleNamespace(**fields)
    before = copy.deepcopy(fields)
    assert pass_through_reason(request, REPEATED, RequestBox(), lambda _messages: media) == reason
    assert vars(request) == before


def test_messages_that_are_no_list_are_not_looked_at() -> None:
    server, given = Server(), iter(REPEATED)
    rendered: Iterator[Any] = iter(())

    async def ask() -> None:
        nonlocal rendered
        plan = await server.service.admission.admit(object(), given)
        rendered = plan.messages

    asyncio.run(ask())
    assert rendered is given
    assert list(given) == REPEATED
    assert server.counted("passed_through", "not_a_list") == 1


def test_installing_twice_is_the_same_as_once() -> None:
    server = Server()
    install(server.renderer, server.service.admission)
    run(server, REPEATED)
    assert server.counted("changed", "none") == 1


def test_removed_text_is_kept_for_look_ups_unless_the_request_says_no() -> None:
    server = Server()
    run(server, REPEATED, lam={"store": False})
    assert server.service.handler.records.bytes_used == 0
    run(server, REPEATED, cache_salt="tenant")
    assert server.service.handler.records.bytes_used > 0


def test_a_salt_reaches_the_memo_from_the_body_or_the_header() -> None:
    server = Server()
    run(server, REPEATED, cache_salt="one")
    run(server, REPEATED, RequestBox(salt_header="one"))
    assert _known(server) == len(REPEATED)
    run(server, REPEATED, RequestBox(salt_header="two"))
    assert _known(server) == 0


def _known(server: Server) -> int:
    report = server.box.settled[-1].report
    assert report is not None
    return report.work.known_messages


def test_a_model_whose_prompts_the_hook_cannot_see_refuses_who_asks_and_serves_the_rest() -> None:
    server = Server(mode="off", harmony=True)
    server.service.admission.refuse_if_asked(object())
    assert run(server, REPEATED) is REPEATED
    with pytest.raises(RefusedError, match="lam"):
        run(server, REPEATED, lam=True)


def test_who_asks_is_answered_outside_the_canary_too() -> None:
    server = Server(rollout=Rollout(canary=0.0))
    assert run(server, REPEATED, lam=True) != REPEATED
    assert run(Server(mode="off", rollout=Rollout(canary=0.0)), REPEATED, lam={"profile": "exact"}) != REPEATED
    assert run(server, REPEATED, lam={"min_tokens": 3}) is REPEATED  # it says how, not whether


def test_each_model_has_its_own_default() -> None:
    off = Options("off", CompactorConfig(profile="exact"), store=True)
    server = Server(rollout=Rollout(models={"adapter": off}))
    assert run(server, REPEATED, model="adapter") is REPEATED
    assert run(server, REPEATED, model="base") != REPEATED
    assert run(server, REPEATED) != REPEATED


def test_a_wish_for_usage_reaches_the_box() -> None:
    server = Server()
    run(server, REPEATED, lam={"usage": True})
    assert server.box.wants_usage
    run(server, REPEATED)
    assert not server.box.wants_usage
