"""A conversation in which three tool results are about different things, and one comes again nearly the same."""

from __future__ import annotations

from lam_vllm.types import Message
from tests.serving.fakes import agent_messages
from tests.worker.conftest import report

DATABASE = """\
The database runs on the host called nightingale and listens on port 5433, behind a proxy that encrypts connections.
Every service gets a user of its own, whose password lies in the vault. Backups are made at two in the morning, kept
for thirty days, and restored once a month on a spare machine, so that nobody has to believe that they work. Replicas
lag by a second at most. Migrations run before a release, in one transaction each, and never drop a column at once.
"""
GARDEN = """\
Tomatoes want sun, water at their roots and never on their leaves, and a stick to climb. Sow them in March behind a
window, plant them out in the middle of May when no frost is to be feared, and pick them from July on. Basil likes the
same place and keeps flies away. Beans may follow in the next year: they leave the soil richer than they found it, and
so the bed rests. Compost goes on in autumn, a hand deep, and the worms do what is left to be done until the spring.
"""
BUILD, BUILD_AGAIN = report(41), report(97)

RESULTS = (DATABASE, BUILD, GARDEN, BUILD_AGAIN)
QUESTION, RESULT = "Which port does the database listen on?", 1
"""A question, and which of the results answers it, counted from 1."""


def conversation(user: object = "nobody") -> list[Message]:
    """The conversation of this user: the same results, another beginning."""
    return [{"role": "user", "content": f"I am {user}."}, *agent_messages(*RESULTS)[1:]]


def message_of(result: int) -> int:
    """Where in the conversation this result stands."""
    return 2 * result
