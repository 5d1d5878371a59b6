"""How many runs a KV cache of fixed size holds at once: counted in blocks, and tried on the engine."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import httpx
from schedules_live import CHAT, ON, Server
from schedules_prompts import Stretch

from lam_vllm.evaluation.live.replay import OPTIONS_HEADER
from lam_vllm.types import Message

ANSWER_TOKENS = 32
"""So many that whoever came first still answers while the last one that fits is prefilled."""
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class AtOnce:
    """What became of requests that came together, until the first was done.

    `begun` had text by then; `answering` of them half an answer: they were not thrown out again as answers grew. The
    engine counts who was thrown out only when it takes him back, which is too late here. `running` and `waiting` are
    the most that its gauges showed.
    """

    asked: int
    begun: int
    answering: int
    running: int
    waiting: int


def blocks_of(prompt_tokens: int, block_tokens: int) -> int:
    """Blocks that a request has when its answer is complete."""
    return -(-(prompt_tokens + ANSWER_TOKENS) // block_tokens)


def fitting(blocks: int, prompt_tokens: Sequence[int], block_tokens: int) -> int:
    """How many runs whose prompts have the mean of these lengths fit into so many blocks."""
    needed = sum(blocks_of(each, block_tokens) for each in prompt_tokens)
    return blocks * len(prompt_tokens) // needed


def most_shortened(stretches: Sequence[Stretch], whole: Sequence[int], kept: Sequence[int]) -> int:
    """Which stretch loses the greatest share of its last prompt; tokens of these prompts whole, and after deletion."""
    return max(range(len(stretches)), key=lambda place: 1 - kept[place] / whole[place])


def try_at_once(server: Server, messages: Sequence[Message], requests: int, *, plugin: bool) -> AtOnce:
    """This prompt sent so many times at once, each as a conversation of its own; stops when the first is done."""
    return asyncio.run(_together(server, messages, requests, ON if plugin else "off"))


async def _together(server: Server, messages: Sequence[Message], requests: int, options: str) -> AtOnce:
    pieces: Counter[int] = Counter()
    most = {"num_requests_running": 0, "num_requests_waiting": 0}
    async with httpx.AsyncClient(base_url=server.url, timeout=None) as http:
        bodies = [server.body(messages, uuid.uuid4().hex, ANSWER_TOKENS) for _ in range(requests)]
        asked = [asyncio.create_task(_read(http, body, options, place, pieces)) for place, body in enumerate(bodies)]
        watch = asyncio.create_task(_watch(server, most))
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        seen = dict(pieces)
        for task in (*asked, watch):
            task.cancel()
        failed = await asyncio.gather(*asked, watch, return_exceptions=True)
    for error in failed:
        if isinstance(error, Exception):
            raise error
    answering = sum(count >= ANSWER_TOKENS / 2 for count in seen.values())
    return AtOnce(requests, len(seen), answering, most["num_requests_running"], most["num_requests_waiting"])


async def _read(
    http: httpx.AsyncClient, body: dict[str, object], options: str, place: int, pieces: Counter[int]
) -> None:
    fields = {**body, "stream": True}
    async with http.stream("POST", CHAT.path, json=fields, headers={OPTIONS_HEADER: options}) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            with suppress(json.JSONDecodeError):  # the last one says [DONE]
                if line.startswith("data:") and CHAT.shows_text(json.loads(line.removeprefix("data:"))):
                    pieces[place] += 1


async def _watch(server: Server, most: dict[str, int]) -> None:
    while True:
        seen = await asyncio.to_thread(server.counters)
        for name, largest in most.items():
            most[name] = max(largest, round(seen[name]))
        await asyncio.sleep(POLL_SECONDS)
