"""The original prompt tokens where users of the official client look: in the usage."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import openai
import pytest

from tests.server.clients import openai_client
from tests.server.conftest import SERVED_NAME, LiveServer
from tests.server.talks import body, recorded
from tests.serving.fakes import TEXT, agent_messages

Asked = tuple[Any, dict[str, Any], int]
"""The usage as the client shows it, the values of x-lam-report, and the prompt tokens that the usage tells."""


def chat(client: openai.OpenAI, headers: dict[str, str]) -> Asked:
    raw = client.chat.completions.with_raw_response.create(
        model=SERVED_NAME, extra_headers=headers, **body("chat", recorded())
    )
    usage = raw.parse().usage
    assert usage is not None
    return usage, json.loads(raw.headers["x-lam-report"]), usage.prompt_tokens


def chat_streamed(client: openai.OpenAI, headers: dict[str, str], **stream_options: bool) -> Asked:
    with client.chat.completions.with_streaming_response.create(
        model=SERVED_NAME,
        extra_headers=headers,
        stream=True,
        stream_options={"include_usage": True, **stream_options},
        **body("chat", recorded()),
    ) as raw:
        *before, last = raw.parse()
    assert len(before) > 1
    assert not any(hasattr(chunk.usage, "original_prompt_tokens") for chunk in before)
    return last.usage, json.loads(raw.headers["x-lam-report"]), last.usage.prompt_tokens


def chat_streamed_with_usage_all_along(client: openai.OpenAI, headers: dict[str, str]) -> Asked:
    return chat_streamed(client, headers, continuous_usage_stats=True)


def responses(client: openai.OpenAI, headers: dict[str, str]) -> Asked:
    raw = client.responses.with_raw_response.create(
        model=SERVED_NAME, extra_headers=headers, **body("responses", recorded())
    )
    usage = raw.parse().usage
    assert usage is not None
    return usage, json.loads(raw.headers["x-lam-report"]), usage.input_tokens


def responses_streamed(client: openai.OpenAI, headers: dict[str, str]) -> Asked:
    with client.responses.with_streaming_response.create(
        model=SERVED_NAME, extra_headers=headers, stream=True, **body("responses", recorded())
    ) as raw:
        *before, last = raw.parse()
    assert len(before) > 1
    usage = last.response.usage
    return usage, json.loads(raw.headers["x-lam-report"]), usage.input_tokens


WAYS: dict[str, Callable[[openai.OpenAI, dict[str, str]], Asked]] = {
    "chat": chat,
    "chat streamed": chat_streamed,
    "chat streamed with usage all along": chat_streamed_with_usage_all_along,
    "responses": responses,
    "responses streamed": responses_streamed,
}


@pytest.mark.parametrize("way", WAYS)
def test_the_client_sees_both_numbers_where_a_request_asked_for_them(way: str, hooked: LiveServer) -> None:
    with openai_client(hooked) as client:
        usage, report, prompt_tokens = WAYS[way](client, {"x-lam": json.dumps({"usage": True})})
    assert report["outcome"] == "changed"
    assert prompt_tokens == report["prefilled_tokens"]
    assert usage.original_prompt_tokens - prompt_tokens == report["original_tokens"] - report["prefilled_tokens"] > 0


@pytest.mark.parametrize("way", WAYS)
def test_without_the_wish_the_usage_is_as_vllm_made_it(way: str, hooked: LiveServer) -> None:
    with openai_client(hooked) as client:
        usage, report, _ = WAYS[way](client, {"x-lam": "true"})
    assert report["outcome"] == "changed"
    assert not hasattr(usage, "original_prompt_tokens")


def test_a_batch_has_the_sum(hooked: LiveServer) -> None:
    prompts = [agent_messages(TEXT, TEXT), agent_messages(TEXT)]
    fields = {"model": SERVED_NAME, **body("chat", []), "messages": prompts}
    with hooked.client() as client:
        answer = client.post("/v1/chat/completions/batch", json=fields, headers={"x-lam": '{"usage": true}'})
    usage, report = answer.json()["usage"], json.loads(answer.headers["x-lam-report"])
    assert usage["prompt_tokens"] == report["prefilled_tokens"]
    assert usage["original_prompt_tokens"] == report["original_tokens"] > usage["prompt_tokens"]


def test_an_answer_that_is_an_error_is_the_one_that_vllm_made(hooked: LiveServer) -> None:
    fields = {"model": SERVED_NAME, **body("chat", recorded()), "max_completion_tokens": 10**6}
    with hooked.client() as client:
        with_wish, without = (
            client.post("/v1/chat/completions", json=fields, headers={"x-lam": options})
            for options in ('{"usage": true}', "true")
        )
    assert with_wish.status_code == without.status_code == 400
    assert with_wish.json() == without.json()


def test_the_count_of_the_messages_api_is_left_alone(hooked: LiveServer) -> None:
    fields = {"model": SERVED_NAME, **body("messages", recorded())}
    with hooked.client() as client:
        answer = client.post("/v1/messages", json=fields, headers={"x-lam": '{"usage": true}'})
    assert "x-lam-report" in answer.headers
    assert "original_prompt_tokens" not in answer.json()["usage"]
