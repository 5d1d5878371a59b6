"""Not enabled, the plugin is not there: prompts have the ids that a server without it makes."""

from __future__ import annotations

import pytest

from tests.server.clients import Request, ask_chat, count_tokens, rendered_ids, tokenized
from tests.server.conftest import LiveServer
from tests.server.talks import recorded


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_a_prompt_has_the_same_ids_on_each_api(api: str, plain: LiveServer, hooked: LiveServer) -> None:
    messages = recorded()
    without = rendered_ids(plain, api, messages)
    assert rendered_ids(hooked, api, messages, options=False) == without
    assert rendered_ids(hooked, api, messages, options=True) != without


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_a_plugin_that_is_loaded_and_switched_off_leaves_requests_that_name_no_option_alone(
    api: str, plain: LiveServer, hooked: LiveServer
) -> None:
    messages = recorded()
    with hooked.client() as client:
        client.post("/v1/lam/enabled", json={"enabled": False}).raise_for_status()
        try:
            ids = rendered_ids(hooked, api, messages, options=None)
        finally:
            client.post("/v1/lam/enabled", json={"enabled": True}).raise_for_status()
    assert ids == rendered_ids(plain, api, messages, options=None)
    assert ids != rendered_ids(hooked, api, messages, options=None)


def test_tokenize_and_count_tokens_give_the_same(plain: LiveServer, hooked: LiveServer) -> None:
    messages = recorded()
    assert tokenized(hooked, messages, options=False) == tokenized(plain, messages)
    assert count_tokens(hooked, messages, options=False) == count_tokens(plain, messages, options=False)


def test_observing_changes_no_id(plain: LiveServer, hooked: LiveServer) -> None:
    messages = recorded()
    assert rendered_ids(hooked, "chat", messages, options={"enabled": "observe"}) == rendered_ids(
        plain, "chat", messages
    )


def test_a_generated_request_prefills_the_same(plain: LiveServer, hooked: LiveServer) -> None:
    messages = recorded(5)
    off = ask_chat(hooked, Request(messages, "off", options=False))
    assert off == ask_chat(plain, Request(messages, "off"))
