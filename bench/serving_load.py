"""The load: turns that arrive when they arrive, whether or not earlier ones are answered."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from serving_client import Answer, Call, Connection
from serving_turns import Traffic, Turn

from lam_vllm.errors import LamError

MOST_AT_ONCE = 256
"""Calls under way; what arrives beyond them is late, and counted so."""


@dataclass(frozen=True, slots=True)
class Load:
    """How turns are sent: each warmed `think_seconds` before it arrives (None: not at all), with this many tokens."""

    url: str
    model: str
    name: str
    output_tokens: int
    think_seconds: float | None
    reconnect: bool = False

    def salt(self, turn: Turn) -> str:
        """One for each conversation of this load: nothing that an earlier one left behind helps it."""
        return f"{self.name}-{turn.conversation}"


@dataclass(frozen=True, slots=True)
class Sent:
    """What came of one turn. `late_seconds` is how much after its time it was sent."""

    turn: Turn
    answer: Answer
    late_seconds: float
    warmed: Call | None


def open_conversations(load: Load, openings: Sequence[Turn]) -> None:
    """Let the server answer these turns one after the other, so that what is measured are conversations under way.

    Raises:
        LamError: it does not answer one.
    """
    connection = Connection(load.url)
    for turn in openings:
        answer = connection.ask(turn.messages, load.model, load.salt(turn), 2)
        if answer.error:
            raise LamError(f"the server does not answer: {answer.error}")
    connection.close()


def under_load(load: Load, turns: Sequence[Turn]) -> list[Sent]:
    """Every turn sent at its time from now, and warmed before where the load says so; returns when all are answered."""
    connections = _connections(load, turns)
    asked: list[Future[Answer]] = []
    warmed: dict[int, Future[Call]] = {}
    began = time.perf_counter()
    with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
        for at, place, is_warm in _schedule(load, turns):
            turn = turns[place]
            connection, salt = connections[turn.conversation], load.salt(turn)
            time.sleep(max(0.0, began + at - time.perf_counter()))
            if is_warm:
                warmed[place] = pool.submit(connection.warm, turn.messages, salt)
            else:
                asked.append(pool.submit(connection.ask, turn.messages, load.model, salt, load.output_tokens))
    for connection in connections.values():
        connection.close()
    answers = [future.result() for future in asked]
    return [
        Sent(turn, answer, answer.sent - began - turn.at_seconds, warmed[place].result() if place in warmed else None)
        for place, (turn, answer) in enumerate(zip(turns, answers, strict=True))
    ]


def alone(load: Load, traffic: Traffic) -> list[Call]:
    """The compactor's calls for the same turns on an idle server, one after the other; nothing is generated."""
    connection = Connection(load.url)
    for turn in traffic.openings:
        connection.prompt(turn.messages, load.model, load.salt(turn))
    calls = []
    for turn in traffic.turns:
        warmed = connection.warm(turn.messages, load.salt(turn)) if load.think_seconds is not None else None
        hook = connection.prompt(turn.messages, load.model, load.salt(turn))
        calls.append(warmed or hook)
    connection.close()
    return calls


def _connections(load: Load, turns: Sequence[Turn]) -> dict[int, Connection]:
    """Every conversation is a client of its own."""
    numbers = {turn.conversation for turn in turns}
    return {number: Connection(load.url, reconnect=load.reconnect) for number in numbers}


def _schedule(load: Load, turns: Sequence[Turn]) -> list[tuple[float, int, bool]]:
    """When to do what: seconds, place of the turn, and whether it is warmed then rather than sent."""
    asks = [(turn.at_seconds, place, False) for place, turn in enumerate(turns)]
    think = load.think_seconds
    warms = [(at - think, place, True) for at, place, _ in asks] if think is not None else []
    return sorted(asks + warms)
