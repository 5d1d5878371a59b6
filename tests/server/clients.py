"""One request by an official client, in each way the tests know, and what its usage says about the prompt."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anthropic
import openai

from lam_vllm.types import Message
from tests.server.conftest import SERVED_NAME, LiveServer
from tests.server.talks import TOOLS, body, in_parallel


@dataclass(frozen=True)
class Usage:
    """Tokens of a prompt, and how many of them came out of the cache."""

    prompt_tokens: int
    cached_tokens: int

    @property
    def uncached_tokens(self) -> int:
        return self.prompt_tokens - self.cached_tokens


@dataclass(frozen=True)
class Request:
    """One conversation to send: under which cache salt, and with which options in the header x-lam."""

    messages: list[Message]
    salt: str
    options: dict[str, Any] | bool = True
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def carried(self) -> dict[str, Any]:
        """Keyword arguments of the official clients."""
        headers = {"x-lam": json.dumps(self.options)}
        return {"extra_headers": headers, "extra_body": {"cache_salt": self.salt, **self.extra}}


def openai_client(server: LiveServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=server.api_key or "none", max_retries=0, timeout=120)


def anthropic_client(server: LiveServer) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.url, auth_token=server.api_key or "none", max_retries=0, timeout=120)


def ask_chat(server: LiveServer, request: Request) -> Usage:
    with openai_client(server) as client:
        answer = client.chat.completions.create(
            model=SERVED_NAME, temperature=0, **body("chat", request.messages), **request.carried
        )
    return _chat_usage(answer.usage)


def ask_chat_stream(server: LiveServer, request: Request) -> Usage:
    with openai_client(server) as client:
        stream = client.chat.completions.create(
            model=SERVED_NAME,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
            **body("chat", request.messages),
            **request.carried,
        )
        *_, last = stream
    return _chat_usage(last.usage)


def ask_chat_with_parallel_calls(server: LiveServer, request: Request) -> Usage:
    with openai_client(server) as client:
        answer = client.chat.completions.create(
            model=SERVED_NAME,
            temperature=0,
            tools=TOOLS,
            parallel_tool_calls=True,
            **body("chat", request.messages),
            **request.carried,
        )
    return _chat_usage(answer.usage)


def ask_responses(server: LiveServer, request: Request) -> Usage:
    with openai_client(server) as client:
        answer = client.responses.create(
            model=SERVED_NAME, temperature=0, **body("responses", request.messages), **request.carried
        )
    return _responses_usage(answer.usage)


def ask_responses_stream(server: LiveServer, request: Request) -> Usage:
    with openai_client(server) as client:
        stream = client.responses.create(
            model=SERVED_NAME, temperature=0, stream=True, **body("responses", request.messages), **request.carried
        )
        *_, last = stream
    return _responses_usage(last.response.usage)


def ask_messages(server: LiveServer, request: Request) -> Usage:
    with anthropic_client(server) as client:
        answer = client.messages.create(model=SERVED_NAME, **body("messages", request.messages), **request.carried)
    return _messages_usage(answer.usage)


def ask_messages_stream(server: LiveServer, request: Request) -> Usage:
    with anthropic_client(server) as client:
        stream = client.messages.create(
            model=SERVED_NAME, stream=True, **body("messages", request.messages), **request.carried
        )
        usages = [event.usage for event in stream if event.type == "message_delta"]
    return _messages_usage(usages[-1])


def count_tokens(server: LiveServer, messages: list[Message], options: dict[str, Any] | bool) -> int:
    """Tokens by the Messages API's own count."""
    fields = body("messages", messages)
    del fields["max_tokens"]
    with anthropic_client(server) as client:
        counted = client.messages.count_tokens(
            model=SERVED_NAME, **fields, extra_headers={"x-lam": json.dumps(options)}
        )
    return int(counted.input_tokens)


def rendered_ids(
    server: LiveServer,
    api: str,
    messages: list[Message],
    options: dict[str, Any] | bool | None = True,
    *,
    model: str = SERVED_NAME,
) -> list[int]:
    """The prompt's token ids as vLLM makes them for this API; with `options` None, for a request that names none."""
    path = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}[api]
    fields = {"model": model, **body(api, messages)}
    headers = {} if options is None else {"x-lam": json.dumps(options)}
    with server.client() as client:
        answer = client.post(f"{path}/render", json=fields, headers=headers)
    assert answer.status_code == 200, answer.text
    ids: list[int] = answer.json()["token_ids"]
    return ids


def tokenized(
    server: LiveServer, messages: list[Message], options: dict[str, Any] | bool = True, *, with_key: bool = True
) -> list[int]:
    """The prompt's token ids by /tokenize."""
    with server.client(with_key=with_key) as client:
        answer = client.post(
            "/tokenize", json={"model": SERVED_NAME, "messages": messages}, headers={"x-lam": json.dumps(options)}
        )
    assert answer.status_code == 200, answer.text
    ids: list[int] = answer.json()["tokens"]
    return ids


@dataclass(frozen=True)
class Way:
    """A way of asking: the API whose rendering it shares, the request, and what becomes of the recorded messages."""

    api: str
    ask: Callable[[LiveServer, Request], Usage]
    shape: Callable[[list[Message]], list[Message]] = list


WAYS = {
    "chat": Way("chat", ask_chat),
    "chat streamed": Way("chat", ask_chat_stream),
    "chat with parallel calls": Way("chat", ask_chat_with_parallel_calls, in_parallel),
    "responses": Way("responses", ask_responses),
    "responses streamed": Way("responses", ask_responses_stream),
    "messages": Way("messages", ask_messages),
    "messages streamed": Way("messages", ask_messages_stream),
}


def _chat_usage(usage: Any) -> Usage:
    return Usage(usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens or 0)


def _responses_usage(usage: Any) -> Usage:
    return Usage(usage.input_tokens, usage.input_tokens_details.cached_tokens or 0)


def _messages_usage(usage: Any) -> Usage:
    cached = usage.cache_read_input_tokens or 0
    return Usage(usage.input_tokens + (usage.cache_creation_input_tokens or 0) + cached, cached)
