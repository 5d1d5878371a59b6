"""Group G: nothing crosses from one tenant to another, and no state but the conversation itself decides anything."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lam_vllm import Compactor, OptionError, make_config
from lam_vllm.encoders.base import Encoder
from lam_vllm.records import LookUp
from lam_vllm.serving.box import RequestBox
from tests.serving.fakes import Server

from .agent import MODULE, OTHER, Make, agent, emitted, listing, numbered

EDITED = MODULE.replace("timeout=30)", "timeout=31)")
VISITS = (MODULE, OTHER, EDITED, numbered(MODULE.split("\n")), OTHER + "\n" + MODULE)
LISTING = listing("berth", "crew", "tide")
REPEATED = agent(MODULE, OTHER, MODULE)


def ask(server: Server, messages: Any, box: RequestBox | None = None, **fields: Any) -> Any:
    """What reached the renderer."""
    return asyncio.run(server.ask(messages, box, **fields))


def known(server: Server) -> int:
    """How many messages of the last request were known before it came."""
    report = server.box.settled[-1].report
    assert report is not None
    return report.work.known_messages


def test_f79_a_request_does_the_same_work_whatever_other_salts_have_sent(
    make: Make, count_tokens: Callable[[str], int], remembering: Encoder
) -> None:
    config = make().config
    counted: list[str] = []

    def watched(text: str) -> int:
        counted.append(text)
        return count_tokens(text)

    def work_of_b(*salts_before: str) -> tuple[list[str], Any]:
        compactor = Compactor(config, watched, None if config.profile == "exact" else remembering)
        for salt in salts_before:
            compactor.compact(REPEATED, salt=salt)
        counted.clear()
        work = compactor.compact(REPEATED, salt="b").report.work
        return list(counted), work

    alone = work_of_b()
    assert work_of_b("a", "", "bb") == alone
    assert work_of_b("b") != alone


def test_f79_a_record_is_found_under_its_own_salt_alone() -> None:
    server = Server()
    ask(server, REPEATED, cache_salt="a")
    records = server.service.handler.records
    own = records.put("a", MODULE)
    assert records.look_up("a", own).text == MODULE
    assert [records.look_up(salt, own) for salt in ("", "b", "aa")] == [LookUp(None, known=False)] * 3


@pytest.mark.parametrize("api", ["chat", "responses", "messages", "tokenize"])
@pytest.mark.parametrize("mode", ["on", "observe"])
def test_f80_the_same_salt_hits_and_another_misses_on_every_api(api: Any, mode: Any) -> None:
    server = Server(mode=mode)

    def by_field(salt: str) -> int:
        ask(server, REPEATED, RequestBox(api=api), cache_salt=salt)
        return known(server)

    def by_header(salt: str) -> int:
        ask(server, REPEATED, RequestBox(api=api, salt_header=salt))
        return known(server)

    assert [by_field("a"), by_field("a"), by_header("a")] == [0, len(REPEATED), len(REPEATED)]
    assert [by_header("b"), by_field("b"), by_field("c")] == [0, len(REPEATED), 0]
    ask(server, REPEATED, RequestBox(api=api))
    assert known(server) == 0


def test_f80_a_salt_decides_no_byte() -> None:
    rendered = [ask(Server(), REPEATED, cache_salt=salt) for salt in ("a", "b", None)]
    assert rendered[0] == rendered[1] == rendered[2]


@pytest.mark.parametrize("fields", [{}, {"cache_salt": None}, {"cache_salt": "a"}])
def test_f82_no_salt_is_made_up(fields: dict[str, Any]) -> None:
    server = Server()
    request = SimpleNamespace(**fields)
    asyncio.run(server.renderer.preprocess_chat(request, REPEATED))
    assert vars(request) == fields


def test_f82_without_a_salt_the_same_request_is_known_again() -> None:
    server = Server()
    first, second = (ask(server, REPEATED) for _ in range(2))
    assert first == second
    assert known(server) == len(REPEATED)


def test_f83_conversations_that_begin_alike_do_not_meet(make: Make) -> None:
    system = {"role": "system", "content": "You repair harbours. " * 1_000}
    one = [system, {"role": "user", "content": "Look at the mast."}, *agent(*VISITS)[2:]]
    other = [system, {"role": "user", "content": "Look at the mask."}, *agent(OTHER, *VISITS)[2:]]
    expected = [make().compact(messages).messages for messages in (one, other)]
    shared = make()
    for turn in range(2, max(len(one), len(other)) + 1, 2):
        mixed = [shared.compact(messages[:turn]).messages for messages in (one, other)]
        assert mixed == [messages[:turn] for messages in expected]


@pytest.mark.parametrize("name", ["session", "session_id", "user", "conversation_id"])
def test_f83_a_session_is_no_option(name: str) -> None:
    with pytest.raises(OptionError, match=name):
        make_config({name: "s-1"})


def test_f83_names_of_users_and_sessions_decide_nothing() -> None:
    server, expected = Server(), ask(Server(), REPEATED)
    for number in range(3):
        named: dict[str, Any] = {
            "user": f"u{number}",
            "session_id": f"s{number}",
            "metadata": {"trace": number},
            "request_id": number,
        }
        assert ask(server, REPEATED, **named) == expected
    assert known(server) == len(REPEATED)


@pytest.mark.parametrize("aliases", [False, True])
def test_f84_a_fork_at_any_turn_gives_the_bytes_of_a_fresh_replay(make: Make, aliases: bool) -> None:
    messages = agent(LISTING, *VISITS, LISTING)
    forks = [[*messages[:turn], *agent(MODULE, LISTING, EDITED)[2:]] for turn in range(len(messages) + 1)]
    expected = [make(directory_aliases=aliases).compact(fork).messages for fork in forks]
    shared = make(directory_aliases=aliases)
    shared.compact(messages)
    order = list(range(len(forks)))
    random.Random(84).shuffle(order)
    for place in order:
        assert shared.compact(forks[place]).messages == expected[place]
    assert shared.compact(messages).messages == make(directory_aliases=aliases).compact(messages).messages


def test_f84_after_the_client_has_summarised_its_history_it_is_a_new_conversation(make: Make) -> None:
    messages = agent(*VISITS, *VISITS)
    shared = make()
    shared.compact(messages)
    summary = {"role": "user", "content": "Summary: the harbour module was read and edited."}
    for start in range(2, len(messages), 2):
        shortened = [messages[0], summary, *messages[start:]]
        assert shared.compact(shortened).messages == make().compact(shortened).messages
    last = [messages[0], summary, *agent(MODULE)[2:]]
    assert emitted(shared.compact(last)) == [MODULE]


def test_f84_a_rewound_and_repeated_turn_gives_the_same_bytes(make: Make) -> None:
    compactor, messages = make(), agent(*VISITS)
    expected = compactor.compact(messages).messages
    for _ in range(2):
        for turn in range(len(messages), 0, -1):
            assert compactor.compact(messages[:turn]).messages == expected[:turn]
