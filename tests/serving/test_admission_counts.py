"""What is counted of requests: each removal and each break once, and tokens that add up."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from lam_vllm.serving import recheck
from lam_vllm.serving.accounting import looks_like_tool_user
from lam_vllm.serving.box import RequestBox, report_header
from lam_vllm.serving.rollout import Rollout
from lam_vllm.serving.work import Handler
from tests.serving.admitted import REPEATED, run
from tests.serving.fakes import TEXT, Server, agent_messages


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


def test_the_turn_after_a_failure_is_counted_as_its_break_and_not_as_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    with monkeypatch.context() as patch:
        patch.setattr(Handler, "_compact", lambda *_: 1 / 0)
        run(server, REPEATED)
    run(server, REPEATED)
    breaks = server.service.metrics.counts("prefix_breaks")
    assert breaks == {"defect": 0, "failed_open": 1, "config_changed": 0, "client_changed": 0}


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


def test_removals_are_counted_once_over_the_turns_of_a_conversation() -> None:
    server = Server()
    for length in range(1, len(REPEATED) + 1):
        run(server, REPEATED[:length])
    run(server, [*REPEATED, {"role": "assistant", "content": "done"}])
    (settled,) = server.box.settled
    assert settled.report is not None
    assert server.service.metrics.counts("tokens_removed")["l0"] == settled.report.removed_tokens["l0"]


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


def test_an_unauthenticated_request_that_is_off_leaves_nothing_behind() -> None:
    server = Server()
    run(server, REPEATED, RequestBox(api="tokenize", authorized=False), lam=False)
    assert len(server.service.handler.watch) == 0
