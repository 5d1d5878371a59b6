from __future__ import annotations

import asyncio
import copy
import json
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from lam_vllm.config import CompactorConfig
from lam_vllm.encoders.base import Encoder
from lam_vllm.errors import EncoderError
from lam_vllm.serving import recheck
from lam_vllm.serving.accounting import looks_like_tool_user
from lam_vllm.serving.admission import pass_through_reason
from lam_vllm.serving.box import RequestBox, report_header
from lam_vllm.serving.hook import install
from lam_vllm.serving.limits import Limits
from lam_vllm.serving.options import Options
from lam_vllm.serving.rollout import Rollout
from lam_vllm.serving.work import Handler
from tests.serving.fakes import TEXT, RefusedError, Server, agent_messages

REPEATED = agent_messages(TEXT, TEXT)


def run(server: Server, messages: Any, box: RequestBox | None = None, **fields: Any) -> Any:
    return asyncio.run(server.ask(messages, box, **fields))


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


def test_tokens_are_what_vllm_made_plus_what_was_removed_less_the_stubs() -> None:
    server = Server()
    run(server, REPEATED)
    (settled,) = server.box.settled
    without = Server(mode="observe")
    run(without, REPEATED)
    assert settled.original_tokens == without.box.settled[0].prefilled_tokens
    assert settled.report is not None
    assert settled.prefilled_tokens == settled.original_tokens - settled.report.saved_tokens


def test_a_batch_is_summed_in_one_report() -> None:
    server = Server()
    alone = run(server, REPEATED) and json.loads(report_header(server.box.settled))
    box = RequestBox()
    for _ in range(3):
        run(server, REPEATED, box)
    report = json.loads(report_header(box.settled))
    assert report["original_tokens"] == 3 * alone["original_tokens"]
    assert report["removed_tokens"]["l0"] == 3 * alone["removed_tokens"]["l0"]


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


class BrokenEncoder:
    """An encoder whose model fails, as one does when memory runs out."""

    fingerprint, name, dimension, window_tokens, threshold_cos = "broken", "broken", 2, 510, 0.95

    def __init__(self, error: Exception) -> None:
        self.error = error

    def token_offsets(self, text: str) -> list[tuple[int, int]]:
        return [(place, place + 1) for place in range(len(text))]

    def encode(self, text: str) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "reason"),
    [(EncoderError("no memory"), "encoder_error"), (ZeroDivisionError(), "internal_error")],
)
def test_a_failure_passes_the_originals_through_and_is_counted(error: Exception, reason: str) -> None:
    encoder: Encoder = BrokenEncoder(error)
    server = Server(config=CompactorConfig(profile="paper"), encoder=encoder)
    assert run(server, REPEATED) is REPEATED
    assert server.counted("failed_open", reason) == 1
    assert server.box.settled[0].outcome == "failed_open"


def test_the_turn_after_a_failure_is_counted_as_its_break_and_not_as_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    with monkeypatch.context() as patch:
        patch.setattr(Handler, "_compact", lambda *_: 1 / 0)
        run(server, REPEATED)
    run(server, REPEATED)
    breaks = server.service.metrics.counts("prefix_breaks")
    assert breaks == {"defect": 0, "failed_open": 1, "config_changed": 0, "client_changed": 0}


def test_a_damaged_memo_costs_one_retry_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    compactor = server.service.handler.compactors.here.get(server.config)
    expected = run(server, REPEATED)
    monkeypatch.setattr(compactor, "_memo", None)  # every use of it fails from here on
    with pytest.raises(AttributeError):
        compactor.compact(REPEATED)
    monkeypatch.undo()
    monkeypatch.setattr(compactor._memo, "take", lambda _digests: 1 / 0)
    assert run(server, REPEATED) == expected
    assert server.counted("failed_open", "internal_error") == 0


def test_a_request_past_the_time_limit_goes_through_as_it_came() -> None:
    release = threading.Event()
    server = Server(limits=Limits(time_limit_seconds=0.0))

    async def ask() -> Any:
        blocked = asyncio.create_task(server.service.pool.submit(lambda: release.wait(10)))
        await asyncio.sleep(0)
        plan = await server.service.admission.admit(object(), REPEATED)
        release.set()
        await blocked
        await server.service.admission.ended()
        return plan

    plan = asyncio.run(ask())
    assert (plan.messages, plan.outcome, plan.reason) == (REPEATED, "failed_open", "time_limit")


class BlockedEncoder(BrokenEncoder):
    """An encoder that is at work until it is released."""

    def __init__(self) -> None:
        super().__init__(EncoderError("released"))
        self.begun, self.release = threading.Event(), threading.Event()

    def encode(self, text: str) -> Any:
        self.begun.set()
        assert self.release.wait(10)
        raise self.error


def test_a_request_that_encodes_does_not_hold_up_one_that_never_does() -> None:
    encoder = BlockedEncoder()
    server = Server(encoder=encoder)

    async def ask() -> None:
        encoding = asyncio.create_task(server.ask(REPEATED, lam={"profile": "paper"}))
        await asyncio.to_thread(encoder.begun.wait, 10)
        async with asyncio.timeout(10):
            plan = await server.service.admission.admit(object(), REPEATED)
        assert plan.outcome == "changed"
        assert not encoding.done()
        assert server.registry.get_sample_value("lam:queue_depth") == 1
        encoder.release.set()
        await encoding

    try:
        asyncio.run(ask())
    finally:
        encoder.release.set()


def test_cancelling_a_request_cancels_the_hook() -> None:
    server = Server()

    async def ask() -> None:
        task = asyncio.create_task(server.ask(REPEATED))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(ask())


def test_a_prefix_that_would_come_out_otherwise_from_nothing_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recheck, "is_sampled", lambda _digest, _rate: True)
    server = Server()
    run(server, REPEATED)
    assert server.service.metrics.counts("prefix_breaks")["defect"] == 0
    monkeypatch.setattr(Handler, "difference", lambda *_: "defect")
    run(server, agent_messages(TEXT, TEXT, TEXT))
    assert server.service.metrics.counts("prefix_breaks")["defect"] == 1


def test_a_defect_is_counted_on_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recheck, "is_sampled", lambda _digest, _rate: True)
    monkeypatch.setattr(Handler, "difference", lambda *_: "defect")
    server, threads = Server(), []
    accounting = server.service.admission.accounting
    monkeypatch.setattr(accounting, "broken", lambda _cause: threads.append(threading.get_ident()))
    run(server, REPEATED)
    assert threads == [threading.get_ident()]


def test_installing_twice_is_the_same_as_once() -> None:
    server = Server()
    install(server.renderer, server.service.admission)
    run(server, REPEATED)
    assert server.counted("changed", "none") == 1


def test_removals_are_counted_once_over_the_turns_of_a_conversation() -> None:
    server = Server()
    for length in range(1, len(REPEATED) + 1):
        run(server, REPEATED[:length])
    run(server, [*REPEATED, {"role": "assistant", "content": "done"}])
    (settled,) = server.box.settled
    assert settled.report is not None
    assert server.service.metrics.counts("tokens_removed")["l0"] == settled.report.removed_tokens["l0"]


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


def test_agents_that_send_tool_output_as_user_messages_are_recognised_and_people_are_not() -> None:
    def talk(reply: str) -> list[Any]:
        return 3 * [{"role": "assistant", "content": "ls"}, {"role": "user", "content": reply}]

    assert looks_like_tool_user(talk("x" * 500))
    assert not looks_like_tool_user(talk("thanks, go on"))
    server = Server()
    run(server, talk("x" * 500))
    assert server.service.admission.accounting.looked_like_tool_user == 1


def breaks(server: Server) -> dict[str, float]:
    """How many prefixes were broken, by cause, where there were any."""
    return {cause: count for cause, count in server.service.metrics.counts("prefix_breaks").items() if count}


def test_turning_the_switch_on_in_a_conversation_is_counted_once_as_a_change_of_config() -> None:
    server, longer = Server(), [*REPEATED, *agent_messages("and on")[1:]]
    server.service.admission.switch.turn(False)
    assert run(server, REPEATED) is REPEATED
    server.service.admission.switch.turn(True)
    assert run(server, longer)[: len(REPEATED)] != REPEATED
    assert breaks(server) == {"config_changed": 1}
    run(server, longer)
    assert breaks(server) == {"config_changed": 1}


def test_a_client_that_turns_compaction_off_for_a_turn_breaks_its_prefix_and_is_counted() -> None:
    server = Server()
    run(server, REPEATED)
    run(server, REPEATED, lam=False)
    run(server, REPEATED)
    assert breaks(server) == {"config_changed": 2}


def test_where_the_server_is_off_nothing_is_remembered_of_requests_that_are_off() -> None:
    server = Server(mode="off")
    run(server, REPEATED)
    assert len(server.service.handler.watch) == 0


def test_a_conversation_outside_the_canary_goes_through_and_its_tokens_are_counted() -> None:
    server = Server(rollout=Rollout(canary=0.0))
    assert run(server, REPEATED) is REPEATED
    assert server.counted("passed_through", "canary") == 1
    (settled,) = server.box.settled
    counts = server.service.metrics.counts
    assert counts("prompt_tokens_original")["chat"] == counts("prompt_tokens_prefilled")["chat"]
    assert settled.prefilled_tokens == settled.original_tokens > 0


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


def test_what_nobody_waits_for_any_more_is_not_begun() -> None:
    server, release = Server(), threading.Event()

    async def leave() -> None:
        pool, admission = server.service.pool, server.service.admission
        blocked = asyncio.create_task(pool.submit(lambda: release.wait(10)))
        clients = [asyncio.create_task(admission.admit(SimpleNamespace(), agent_messages(str(n)))) for n in range(50)]
        await asyncio.sleep(0)
        while pool.waiting("exact") <= len(clients):
            await asyncio.sleep(0)
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        await asyncio.sleep(0)
        assert pool.waiting("exact") == 1
        release.set()
        await blocked
        await admission.ended()

    asyncio.run(leave())
    assert len(server.service.handler.watch) == 0


def test_an_unauthenticated_request_that_is_off_leaves_nothing_behind() -> None:
    server = Server()
    run(server, REPEATED, RequestBox(api="tokenize", authorized=False), lam=False)
    assert len(server.service.handler.watch) == 0
