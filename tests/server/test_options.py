"""A bad option is a 400 that names itself, on every API and by each carrier that reaches the plugin there."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import openai
import pytest

from tests.server.clients import anthropic_client, openai_client
from tests.server.conftest import SERVED_NAME, LiveServer
from tests.server.talks import body, recorded

CARRIERS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "x-lam.min_tokens": ({"x-lam": '{"min_tokens": -1}'}, {}),
    "lam.min_tokens": ({}, {"lam": {"min_tokens": -1}}),
    "vllm_xargs.lam_min_tokens": ({}, {"vllm_xargs": {"lam_min_tokens": -1}}),
}
NOT_A_LAM_FIELD = ["x-lam.min_tokens", "vllm_xargs.lam_min_tokens"]


@pytest.mark.parametrize("name", CARRIERS)
def test_on_chat(name: str, hooked: LiveServer) -> None:
    headers, extra = CARRIERS[name]
    with openai_client(hooked) as client, pytest.raises(openai.BadRequestError, match=f"{name}: -1") as caught:
        client.chat.completions.create(
            model=SERVED_NAME, **body("chat", recorded(5)), extra_headers=headers, extra_body=extra
        )
    assert caught.value.param == name


@pytest.mark.parametrize("name", CARRIERS)
def test_on_responses(name: str, hooked: LiveServer) -> None:
    headers, extra = CARRIERS[name]
    with openai_client(hooked) as client, pytest.raises(openai.BadRequestError, match=f"{name}: -1"):
        client.responses.create(
            model=SERVED_NAME, **body("responses", recorded(5)), extra_headers=headers, extra_body=extra
        )


@pytest.mark.parametrize("name", NOT_A_LAM_FIELD)
def test_on_messages(name: str, hooked: LiveServer) -> None:
    headers, extra = CARRIERS[name]
    with anthropic_client(hooked) as client, pytest.raises(anthropic.BadRequestError, match=f"{name}: -1"):
        client.messages.create(
            model=SERVED_NAME, **body("messages", recorded(5)), extra_headers=headers, extra_body=extra
        )


def test_on_count_tokens(hooked: LiveServer) -> None:
    fields = body("messages", recorded(5))
    del fields["max_tokens"]
    headers = CARRIERS["x-lam.min_tokens"][0]
    with anthropic_client(hooked) as client, pytest.raises(anthropic.BadRequestError, match=r"x-lam.min_tokens: -1"):
        client.messages.count_tokens(model=SERVED_NAME, **fields, extra_headers=headers)


@pytest.mark.parametrize("name", CARRIERS)
def test_on_tokenize(name: str, hooked: LiveServer) -> None:
    headers, extra = CARRIERS[name]
    with hooked.client() as client:
        answer = client.post("/tokenize", json={"messages": recorded(5), **extra}, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == name


@pytest.mark.parametrize("name", ["x-lam.min_tokens", "lam.min_tokens"])
def test_on_the_dry_run(name: str, hooked: LiveServer) -> None:
    headers, extra = CARRIERS[name]
    with hooked.client() as client:
        answer = client.post("/v1/lam/compact", json={"messages": recorded(5), **extra}, headers=headers)
    assert answer.status_code == 400
    assert name in json.dumps(answer.json())
