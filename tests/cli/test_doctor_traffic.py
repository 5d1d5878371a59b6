"""`lam-vllm doctor --url` on traffic: why nothing was removed, in words and with a remedy."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from lam_vllm.commands.doctor_traffic import CAUSES
from lam_vllm.config import CompactorConfig
from lam_vllm.serving.box import RequestBox
from lam_vllm.serving.rollout import Rollout
from lam_vllm.types import Reason
from tests.cli.doctored import REPEATED, ask, examined, failing, left_alone, wrong
from tests.cli.test_doctor import found
from tests.serving.fakes import TEXT, RefusedError, Server, agent_messages

REPLY = "error in the build: the linker was not found in any of the usual folders, nor in those of the path\n" * 6


def test_every_reason_there_is_has_words() -> None:
    assert {*CAUSES, "off"} >= {*get_args(Reason)}
    assert all(cause.words for cause in CAUSES.values())


def test_reasons_come_most_frequent_first_and_with_their_shares() -> None:
    server = Server()
    ask(server, agent_messages(TEXT), times=6)  # no_repeat
    ask(server, [{"role": "user", "content": "Good morning."}], times=3)  # no_observation
    ask(server, REPEATED, truncate_prompt_tokens=10)
    findings = examined(server)
    assert [finding.found for finding in left_alone(findings)] == [
        "60.0% unchanged: no_repeat",
        "30.0% unchanged: no_observation",
        "10.0% passed_through: truncation",
    ]
    assert "nothing was removed" in found(findings, "traffic").why
    assert all(finding.remedy for finding in left_alone(findings))


@pytest.mark.parametrize(
    ("server", "fields", "words", "remedy"),
    [
        (Server(mode="off"), {}, "off by default", "--lam-profile exact"),
        (Server(), {"lam": False}, "said off themselves", "in the client"),
        (Server(config=CompactorConfig(profile="exact", min_tokens=9_000)), {}, "shorter than min_tokens", "lower"),
        (Server(), {"box": RequestBox(api="tokenize", authorized=False)}, "without a valid key", "send the"),
        (Server(mode="observe"), {}, "changes nothing", "--lam-enabled true"),
        (Server(rollout=Rollout(0.0)), {}, "canary leaves", "--lam-canary"),
    ],
)
def test_nothing_removed_is_explained_in_words(server: Server, fields: dict[str, Any], words: str, remedy: str) -> None:
    ask(server, **fields)
    (finding,) = left_alone(examined(server))
    assert finding.found.startswith("100.0% ")
    assert words in finding.why and remedy in finding.remedy and not finding.wrong


def test_the_run_time_switch_is_seen() -> None:
    server = Server()
    server.service.admission.switch.turn(False)
    ask(server)
    (finding,) = left_alone(examined(server))
    assert "switched off at run time" in finding.why and "/v1/lam/enabled" in finding.remedy
    assert "once, for all processes of the server" in finding.remedy


def test_an_agent_whose_tool_output_comes_as_user_messages_is_seen() -> None:
    server = Server()
    talk = [{"role": "user", "content": "go"}]
    for turn in range(4):
        talk += [{"role": "assistant", "content": f"call {turn}"}, {"role": "user", "content": REPLY}]
    ask(server, talk)
    findings = examined(server)
    assert "no tool results" in left_alone(findings)[0].why
    hint = found(findings, "tool output as user messages")
    assert "tool+user" in hint.why and "tool+user" in hint.remedy


def test_a_bad_option_is_told_even_where_other_requests_were_changed() -> None:
    server = Server()
    ask(server)
    with pytest.raises(RefusedError):
        ask(server, lam={"bogus": 1})
    (finding,) = left_alone(examined(server))
    assert "400" in finding.why and finding.remedy == "mend the option in the client"


def test_a_failure_inside_is_wrong_and_named() -> None:
    server = Server()
    server.service.handler.compactors.here.get = failing  # type: ignore[method-assign, assignment]
    ask(server)
    findings = examined(server)
    (finding,) = left_alone(findings)
    assert finding.found == "100.0% failed_open: internal_error" and finding.wrong
    assert {"left alone", "self-test: exact"} <= set(wrong(findings))
    assert "answers 500" in found(findings, "self-test: exact").found
