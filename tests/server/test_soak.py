"""Twenty long conversations with forks, retries and edits: nothing breaks, and nothing that was kept is lost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.server.books import books
from tests.server.conftest import SERVED_NAME, LiveServer
from tests.server.soaking import Played, Removed, is_found, play, steps
from tests.server.steady import steady_client

CONVERSATIONS = 20
TURNS = 10
CLIENTS = 4
GENERATED_STEPS = (1, 4)
"""Of each conversation these are answered by the engine: short ones, which a CPU prefills in no time."""


def test_a_number_names_its_conversation_and_there_are_steps_of_every_kind() -> None:
    plans = [list(steps(number, TURNS, seed=1)) for number in range(CONVERSATIONS)]
    assert plans == [list(steps(number, TURNS, seed=1)) for number in range(CONVERSATIONS)]
    assert {step.kind for plan in plans for step in plan} == {"turn", "retry", "fork", "edit"}
    assert all(sum(step.kind == "turn" for step in plan) == TURNS for plan in plans)


def test_no_conversation_breaks_and_every_removed_text_can_be_looked_up(hooked: LiveServer) -> None:
    with steady_client(hooked.url, hooked.headers) as client, ThreadPoolExecutor(CLIENTS) as pool:

        def conversation(number: int) -> Played:
            plan = list(steps(number, TURNS, seed=1))
            return play(client, SERVED_NAME, number, plan, [place in GENERATED_STEPS for place in range(len(plan))])

        def look_up(removed: Removed) -> bool:
            return is_found(client, removed)

        before = books(client)
        played = list(pool.map(conversation, range(CONVERSATIONS)))
        after = books(client)
        removed = [each for one in played for leaf in one.removed for each in leaf]
        found = list(pool.map(look_up, removed))

    assert [fault for one in played for fault in one.faults] == []
    assert (after.defects, after.failed_open, after.processes) == (before.defects, before.failed_open, before.processes)
    assert len(removed) > 5 * CONVERSATIONS and all(found)
    assert sum(one.requests for one in played) > 1.1 * CONVERSATIONS * TURNS  # forks and retries came too
