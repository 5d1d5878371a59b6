"""What a client and the engine's own counters say of each turn that is sent under a schedule."""

from __future__ import annotations

import json
import re
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import httpx
from schedules_prompts import SCHEDULES, Stretch, Tokens, prompts_of

from lam_vllm.errors import LamError
from lam_vllm.evaluation.live.client import Client
from lam_vllm.evaluation.live.dialects import dialect
from lam_vllm.evaluation.live.replay import OPTIONS_HEADER
from lam_vllm.types import Message

ANSWER_TOKENS = 2
"""The first may be half of a character and print nothing."""
ON = json.dumps({"enabled": True, "profile": "exact"})
CHAT = dialect("chat")
_SAMPLE = re.compile(r"^vllm:(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_SOURCE = re.compile(r'source="(\w+)"')
_SETTING = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Sent:
    """One turn. `computed_tokens`, `queried_tokens` and `hit_tokens` are by how much the engine's counters grew."""

    prompt_tokens: int
    cached_tokens: int
    ttft_seconds: float
    computed_tokens: int
    queried_tokens: int
    hit_tokens: int
    hook_seconds: float = 0.0
    """What the plugin reports of itself."""

    @property
    def uncached_tokens(self) -> int:
        """Of the prompt, as its answer has it."""
        return self.prompt_tokens - self.cached_tokens


class Server:
    """A vLLM with the plugin at `url`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = Client(url)
        self.model = self.client.model()

    def body(self, messages: Sequence[Message], salt: str, answer_tokens: int) -> dict[str, object]:
        """The fields of a request that is answered with exactly so many tokens."""
        answer = {"temperature": 0, "min_tokens": answer_tokens, "ignore_eos": True}
        return {**CHAT.body(messages, answer_tokens), "model": self.model, "cache_salt": salt, **answer}

    def ask(self, messages: Sequence[Message], salt: str, options: str) -> Sent:
        """One turn, streamed, and how the counters grew meanwhile.

        Raises:
            ServerError: the server refuses it. LamError: it answered without text.
        """
        before = self.counters()
        answer = self.client.stream(CHAT, self.body(messages, salt, ANSWER_TOKENS), {OPTIONS_HEADER: options})
        grown = {name: round(value - before[name]) for name, value in self.counters().items()}
        if answer.ttft_seconds is None:
            raise LamError(f"{self.url}: an answer of {ANSWER_TOKENS} tokens printed nothing")
        return Sent(
            answer.usage.prompt_tokens,
            answer.usage.cached_tokens,
            answer.ttft_seconds,
            grown["prompt_tokens_by_source_total local_compute"],
            grown["prefix_cache_queries_total"],
            grown["prefix_cache_hits_total"],
            answer.report.get("milliseconds", 0.0) / 1000,
        )

    def counters(self) -> defaultdict[str, float]:
        """The engine's metrics as `sums` makes them."""
        return sums(self._metrics())

    def blocks(self) -> tuple[int, int]:
        """How many blocks the KV cache has for requests, and tokens in each. The engine keeps one block for itself."""
        config = next(labels for name, labels, _ in _SAMPLE.findall(self._metrics()) if name == "cache_config_info")
        settings = dict(_SETTING.findall(config))
        return int(settings["num_gpu_blocks"]) - 1, int(settings["block_size"])

    def _metrics(self) -> str:
        return httpx.get(f"{self.url}/metrics").raise_for_status().text


def sums(metrics: str) -> defaultdict[str, float]:
    """vLLM's metrics summed over all labels but `source`: by name, or by name and source where there is one."""
    found: defaultdict[str, float] = defaultdict(float)
    for name, labels, value in _SAMPLE.findall(metrics):
        source = _SOURCE.search(labels)
        found[f"{name} {source.group(1)}" if source else name] += float(value)
    return found


def send(server: Server, stretch: Stretch, schedule: str, tokens: Tokens) -> list[Sent]:
    """The turns of the stretch under this schedule, in order.

    Under `admit` the plugin gets the recorded messages and shortens them, so that its time is in the figures. The other
    prompts are ready-made and the plugin is off: what decides for them costs them nothing.

    Raises:
        LamError: as `Server.ask`; or the engine saw another prompt than `prompts_of` makes, so that figures would be
            of another deletion set.
    """
    expected = prompts_of(stretch, schedule, tokens)
    recorded = prompts_of(stretch, "none", tokens)
    asked, options = (recorded, ON) if schedule == "admit" else (expected, "off")
    salts = _salts(fresh=schedule == "rebuild_all")
    sent = [server.ask(messages, next(salts), options) for messages in asked]
    for turn, (messages, seen) in enumerate(zip(expected, sent, strict=True), start=1):
        if seen.prompt_tokens != len(tokens(messages)):
            raise LamError(
                f"{stretch.run_id}, {schedule}, turn {turn}: the engine saw {seen.prompt_tokens:,} tokens, "
                f"not the {len(tokens(messages)):,} of the deletion set"
            )
    return sent


def _salts(*, fresh: bool) -> Iterator[str]:
    salt = uuid.uuid4().hex
    while True:
        yield uuid.uuid4().hex if fresh else salt


def in_turn(place: int) -> Sequence[str]:
    """The schedules in the order in which stretch number `place` runs them, so that each is first, second, ... once."""
    first = place % len(SCHEDULES)
    return SCHEDULES[first:] + SCHEDULES[:first]


def measure(server: Server, stretch: Stretch, place: int, tokens: Tokens, *, rebuild: bool) -> Mapping[str, list[Sent]]:
    """Every schedule's turns of this stretch; `rebuild_all`, which takes as long as the others together, if asked for.

    Raises:
        LamError: as `send`.
    """
    asked = [schedule for schedule in in_turn(place) if rebuild or schedule != "rebuild_all"]
    return {schedule: send(server, stretch, schedule, tokens) for schedule in asked}
