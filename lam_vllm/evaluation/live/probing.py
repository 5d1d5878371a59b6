"""Requests to a running vLLM that show how long a prefill and a decode step take, by the client's clock."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from time import perf_counter
from typing import Any

from lam_vllm.errors import OptionError
from lam_vllm.evaluation.live.client import Answer, Client, ServerError
from lam_vllm.evaluation.live.dialects import Dialect, Event, Usage
from lam_vllm.performance_model.calibrate import Timing, middle_timings
from lam_vllm.performance_model.rates import package_texts
from lam_vllm.types import Message

ANSWER_TOKENS = 9
"""One that ends the prefill, and eight steps."""
GROWING = (
    (1 / 32, 1 / 16, 1 / 4, 9 / 32, 1 / 2, 17 / 32, 3 / 4, 25 / 32, 1.0),
    (1 / 8, 1 / 4, 3 / 8, 1 / 2, 5 / 8, 3 / 4, 7 / 8, 1.0),
    (1 / 2, 1.0),
    (1.0,),
)
"""Conversations, as shares of the longest prompt: short and long prefills behind short and long cached prefixes."""
FILLED, OPENING_TOKENS = 0.94, 38
"""Some code takes 5% more tokens than other code; a UUID has 36 characters."""
REQUESTS = sum(map(len, GROWING))
LEAST_TOKENS = 256
"""Of the longest prompt: below, the grid's prefills are shorter than the block of a cache."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What a server says of the first model that it serves: its name, where it was loaded from, and its window."""

    name: str
    root: str
    window_tokens: int

    @property
    def most_tokens(self) -> int:
        """The longest prompt that leaves room for its answer."""
        return self.window_tokens - ANSWER_TOKENS


def served_model(client: Client) -> ServedModel:
    """The first model that is served.

    Raises:
        ServerError: the server cannot be reached, or is none of vLLM.
    """
    first = client.get_json("/v1/models")["data"][0]
    try:
        return ServedModel(first["id"], first["root"], first["max_model_len"])
    except KeyError as error:
        raise ServerError(f"{client.url}/v1/models: no {error.args[0]}: is this vLLM?") from None


def probe(
    client: Client, model: ServedModel, longest_tokens: int, rounds: int, on_request: Callable[[], None] = lambda: None
) -> list[Timing]:
    """One timing for each request of `GROWING`, of `rounds` the one with the median TTFT; nobody else should ask.

    Every conversation begins with words of its own, so that nothing is cached but what it sent before.

    Raises:
        OptionError: `longest_tokens` or `rounds` is too small, or the prompt and its answer exceed the window.
        ServerError: the server refuses, or does not tell that it has what was sent before in its prefix cache.
    """
    if not LEAST_TOKENS <= longest_tokens <= model.most_tokens:
        allowed = f"{LEAST_TOKENS:,} to the {model.most_tokens:,} that {model.name} holds"
        raise OptionError("longest_tokens", longest_tokens, allowed)
    if rounds < 1:
        raise OptionError("rounds", rounds, "an integer of at least 1")
    text = _text(client, model, longest_tokens)
    seen: list[list[Timing]] = []
    for _ in range(rounds):
        seen.append([])
        for shares in GROWING:
            for timing in _conversation(client, model, text, shares):
                seen[-1].append(timing)
                on_request()
    timings = middle_timings(seen)
    if not any(each.cached_tokens for each in timings):
        raise ServerError(
            f"{client.url}: no prompt had a cached prefix; vLLM needs --enable-prefix-caching (its default) and "
            "--enable-prompt-tokens-details"
        )
    return timings


def _conversation(client: Client, model: ServedModel, text: str, shares: Sequence[float]) -> Iterator[Timing]:
    opening = f"{uuid.uuid4()} "
    for share in shares:
        yield _timing(client, model, opening + text[: round(share * len(text))])


def _timing(client: Client, model: ServedModel, prompt: str) -> Timing:
    began = perf_counter()
    answer = _ask(client, model, prompt)
    seconds = perf_counter() - began
    if answer.ttft_seconds is None:
        raise ServerError(f"{client.url}: an answer of {ANSWER_TOKENS} tokens came without any")
    return Timing(
        answer.usage.prompt_tokens - answer.usage.cached_tokens,
        answer.usage.cached_tokens,
        answer.ttft_seconds,
        (seconds - answer.ttft_seconds) / (ANSWER_TOKENS - 1),
    )


def _ask(client: Client, model: ServedModel, prompt: str) -> Answer:
    body = COMPLETIONS.body([{"role": "user", "content": prompt}], ANSWER_TOKENS)
    return client.stream(COMPLETIONS, {"model": model.name, **body}, {})


def _text(client: Client, model: ServedModel, tokens: int) -> str:
    """The package's own text of nearly so many tokens, and no more. Counting those of a part also warms the server."""
    characters = 2 * tokens
    sample = _ask(client, model, f"{uuid.uuid4()} {_repeated(characters)}")
    share = (FILLED * tokens - OPENING_TOKENS) / sample.usage.prompt_tokens
    return _repeated(round(share * characters))


def _repeated(characters: int) -> str:
    parts: list[str] = []
    for text in cycle(package_texts()):
        if sum(map(len, parts)) >= characters:
            break
        parts.append(text)
    return "".join(parts)[:characters]


def _body(messages: Sequence[Message], max_tokens: int) -> dict[str, Any]:
    """Contents one after the other: a completion has no roles. The answer has exactly `max_tokens`."""
    return {
        "prompt": "".join(message["content"] for message in messages),
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream_options": {"include_usage": True},
    }


def _usage(event: Event) -> Usage | None:
    usage = event.get("usage")
    if not usage:
        return None
    return Usage(usage["prompt_tokens"], (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)


COMPLETIONS = Dialect("/v1/completions", _body, lambda event: bool(event.get("choices")), _usage)
"""Every event with a choice carries tokens, though they be none that print: the first one is the end of the prefill."""
