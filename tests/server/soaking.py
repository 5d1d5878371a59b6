"""Long conversations with retries, forks and edits, sent to a real server, and what must hold of every answer.

A conversation is a fixed list of steps for its number and seed. `play` sends them; what it finds wrong is a sentence.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, TypeAlias

import httpx

from lam_vllm.evaluation.corpus import read_runs
from lam_vllm.types import Message
from tests.server.talks import CORPUS, common_prefix, with_calls

Kind: TypeAlias = Literal["turn", "retry", "fork", "edit"]
RESULT_CHARACTERS = 500
"""Of a tool result: twenty turns then fit into a small context."""
REREADS, RETRIES, FORKS, EDITS = 0.4, 0.1, 0.3, 0.2
"""Share of results that show an earlier one again, of turns sent twice, of conversations with a fork, with an edit."""
SIDE_TURNS = 3
"""Turns of a fork."""
PROMPT_TOKENS = 4
"""The words that ask the assistant to speak, at the end of every prompt, may merge with what it says."""


@dataclass(frozen=True, slots=True)
class Step:
    """One request. `is_leaf`: no later step of the conversation has these messages as its beginning."""

    kind: Kind
    messages: Sequence[Message]
    is_leaf: bool = False


@dataclass(frozen=True, slots=True)
class Removed:
    """A piece of text that was removed, and the id to look it up by under the conversation's salt."""

    salt: str
    id: str
    text: str


@dataclass(slots=True)
class Played:
    """One conversation that was sent: how many requests, what was wrong, and what can be looked up, by leaf."""

    requests: int = 0
    generated: int = 0
    faults: list[str] = field(default_factory=list)
    removed: list[list[Removed]] = field(default_factory=list)


def steps(number: int, turns: int, seed: int) -> Iterator[Step]:
    """The requests of conversation `number`: its turns, some twice, a fork at a random turn, an edit by the client."""
    draw = random.Random(f"{seed}/{number}")
    trunk = _conversation(number, turns, draw)
    ends = [place + 1 for place, message in enumerate(trunk) if message["role"] == "tool"]
    fork = draw.randrange(1, turns) if draw.random() < FORKS else None
    for turn, end in enumerate(ends):
        last = turn == turns - 1
        yield Step("turn", trunk[:end], is_leaf=last)
        if draw.random() < RETRIES:
            yield Step("retry", trunk[:end])
        if turn == fork:
            yield from _fork(trunk[:end], number, draw)
    if draw.random() < EDITS:
        yield Step("edit", _edited(trunk, draw), is_leaf=True)


def play(client: httpx.Client, model: str, number: int, plan: Sequence[Step], generated: Sequence[bool]) -> Played:
    """Send the steps of one conversation in order, each under the conversation's salt.

    Where `generated` says so the engine answers with one token; the other prompts are only rendered.
    """
    played, salt = Played(), f"soak {number}"
    before: list[int] = []
    for place, (step, is_generated) in enumerate(zip(plan, generated, strict=True)):
        ids = _prompt(client, model, step, salt, is_generated)
        played.requests += 1
        played.generated += is_generated
        if step.kind == "retry" and ids != before:
            played.faults.append(f"{salt}, step {place}: sent again, the prompt is another one")
        if step.kind in ("turn", "fork") and common_prefix(before, ids) < len(before) - PROMPT_TOKENS:
            played.faults.append(f"{salt}, step {place}: the prompt does not begin with that of the turn before it")
        if step.kind in ("turn", "retry"):
            before = ids
        if step.is_leaf:
            played.removed.append(_removed(client, step.messages, salt))
    return played


def is_found(client: httpx.Client, removed: Removed) -> bool:
    """Whether the text can be looked up. The answer for what is gone is 410; another one is raised."""
    answer = client.get(f"/v1/lam/records/{removed.id}", headers={"x-lam-cache-salt": removed.salt})
    if answer.status_code == httpx.codes.GONE:
        return False
    return bool(answer.raise_for_status().json()["text"] == removed.text)


def _prompt(client: httpx.Client, model: str, step: Step, salt: str, is_generated: bool) -> list[int]:
    """The prompt's token ids."""
    fields = {"model": model, "messages": step.messages, "cache_salt": salt, "max_tokens": 1, "temperature": 0}
    path = "/v1/chat/completions"
    if is_generated:
        answer = client.post(path, json={**fields, "return_token_ids": True}).raise_for_status().json()
        return list(answer["prompt_token_ids"])
    return list(client.post(f"{path}/render", json=fields).raise_for_status().json()["token_ids"])


def _removed(client: httpx.Client, messages: Sequence[Message], salt: str) -> list[Removed]:
    """Every piece of these messages that was removed and kept, as a dry run tells."""
    body = {"messages": messages, "cache_salt": salt}
    answer: dict[str, Any] = client.post("/v1/lam/compact", json=body).raise_for_status().json()
    return [
        Removed(salt, each["record"], messages[place]["content"][each["decision"]["start"] : each["decision"]["end"]])
        for each in answer["decisions"]
        if each["record"] is not None
        for place in [each["decision"]["message"]]
    ]


@cache
def _material() -> list[list[str]]:
    """Tool results of recorded runs, as long as their lines fit."""
    runs = [[message["content"] for message in run.messages if message["role"] == "tool"] for run in read_runs(CORPUS)]
    return [[_cut(text) for text in texts] for texts in runs if len(texts) >= 10]


def _cut(text: str) -> str:
    return (
        text
        if len(text) <= RESULT_CHARACTERS
        else text[:RESULT_CHARACTERS].rpartition("\n")[0] or text[:RESULT_CHARACTERS]
    )


def _conversation(number: int, turns: int, draw: random.Random) -> list[Message]:
    """A user's words that nobody else says, and turns of a call and its result."""
    messages: list[Message] = [{"role": "user", "content": f"Conversation {number}: please solve the issue."}]
    return _continued(messages, _material()[number % len(_material())], turns, draw)


def _continued(messages: Sequence[Message], texts: Sequence[str], turns: int, draw: random.Random) -> list[Message]:
    """The messages and as many turns more."""
    longer, shown = list(messages), [message["content"] for message in messages if message["role"] == "tool"]
    for turn in range(turns):
        again = bool(shown) and draw.random() < REREADS
        text = _touched(draw.choice(shown), draw) if again else texts[(len(shown) + turn) % len(texts)]
        shown.append(text)
        longer += [{"role": "assistant", "content": f"Step {len(shown)}."}, {"role": "tool", "content": text}]
    return with_calls(longer)


def _touched(text: str, draw: random.Random) -> str:
    """The text with one of its lines changed, as after an edit."""
    lines = text.split("\n")
    lines[draw.randrange(len(lines))] += f" changed {draw.randrange(100)}"
    return "\n".join(lines)


def _fork(messages: Sequence[Message], number: int, draw: random.Random) -> Iterator[Step]:
    """Another way on from here, of which every turn is sent."""
    bare = [{"role": message["role"], "content": message["content"]} for message in messages]
    side = _continued(bare, _material()[(number + 1) % len(_material())], SIDE_TURNS, draw)
    for end in range(len(messages) + 2, len(side) + 1, 2):
        yield Step("fork", side[:end], is_leaf=end == len(side))


def _edited(messages: Sequence[Message], draw: random.Random) -> list[Message]:
    """The conversation in which the client changed an earlier message of its own."""
    place = draw.randrange(len(messages) // 2)
    changed = {**messages[place], "content": f"{messages[place]['content']} (edited)"}
    return [*messages[:place], changed, *messages[place + 1 :]]
