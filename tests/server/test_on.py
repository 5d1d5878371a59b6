"""Enabled: fewer tokens, and vLLM's prefix cache is hit as if nothing had been changed."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from tests.server.clients import WAYS, Request, Usage, count_tokens, openai_client, rendered_ids, tokenized
from tests.server.conftest import BLOCK_TOKENS, SERVED_NAME, LiveServer
from tests.server.talks import TOO_LONG_MESSAGES, body, common_prefix, recorded, turns

PROFILES: dict[str, dict[str, Any]] = {"exact": {"enabled": True}, "guarded": {"profile": "guarded"}}
CASES = [(way, "exact") for way in WAYS] + [("chat", "guarded")]


def blocks(tokens: int) -> int:
    return tokens // BLOCK_TOKENS * BLOCK_TOKENS


def breaks(server: LiveServer) -> dict[str, float]:
    with server.client() as client:
        counted: dict[str, float] = client.get("/v1/lam/status").json()["prefix_breaks"]
    return counted


@pytest.mark.parametrize(("way", "profile"), CASES)
def test_every_turn_hits_the_cache_and_prefills_no_more_than_without(
    way: str, profile: str, hooked: LiveServer
) -> None:
    asking, options, salt = WAYS[way], PROFILES[profile], f"{way} {profile}"
    conversation = turns(asking.shape(recorded()))
    ids = [rendered_ids(hooked, asking.api, turn, options) for turn in conversation]
    on = [asking.ask(hooked, Request(turn, f"{salt} on", options)) for turn in conversation]
    off = [asking.ask(hooked, Request(turn, f"{salt} off", False)) for turn in conversation]

    assert [usage.prompt_tokens for usage in on] == [len(prompt) for prompt in ids]
    for (before, prompt), usage in zip(pairwise(ids), on[1:], strict=True):
        assert usage.cached_tokens >= blocks(common_prefix(before, prompt))
    for with_plugin, without in zip(on, off, strict=True):
        assert with_plugin.uncached_tokens <= without.uncached_tokens + BLOCK_TOKENS
    assert on[-1].prompt_tokens < 0.9 * off[-1].prompt_tokens
    assert breaks(hooked)["defect"] == 0


def test_a_chain_of_responses_hits_the_cache(hooked: LiveServer) -> None:
    conversation = turns(recorded())
    usages: dict[bool, list[Usage]] = {True: [], False: []}
    with openai_client(hooked) as client:
        for options, seen in usages.items():
            previous, sent = None, 0
            for turn in conversation:
                new = [message for message in turn[sent:] if not previous or message["role"] != "assistant"]
                answer = client.responses.create(
                    model=SERVED_NAME, temperature=0, previous_response_id=previous, store=True,
                    **body("responses", new),
                    extra_headers={"x-lam": json.dumps(options)}, extra_body={"cache_salt": f"chain {options}"},
                )  # fmt: skip
                usage = answer.usage
                assert usage is not None
                seen.append(Usage(usage.input_tokens, usage.input_tokens_details.cached_tokens))
                previous, sent = answer.id, len(turn)
    template_end = 8  # an answer may be empty; then the tokens that ask for one are not repeated
    for before, after in pairwise(usages[True]):
        assert after.cached_tokens >= blocks(before.prompt_tokens - template_end)
    for with_plugin, without in zip(usages[True], usages[False], strict=True):
        assert with_plugin.uncached_tokens <= without.uncached_tokens + BLOCK_TOKENS
    assert usages[True][-1].prompt_tokens < 0.9 * usages[False][-1].prompt_tokens


@pytest.mark.parametrize("way", ["chat", "responses", "messages"])
def test_a_request_too_long_without_the_plugin_is_answered_with_it(way: str, hooked: LiveServer) -> None:
    messages = recorded(TOO_LONG_MESSAGES)
    with pytest.raises(Exception, match="400"):
        WAYS[way].ask(hooked, Request(messages, "too long", False))
    assert WAYS[way].ask(hooked, Request(messages, "too long", True)).prompt_tokens > 0


def test_tokenize_and_count_tokens_count_what_a_request_would_prefill(hooked: LiveServer) -> None:
    messages = recorded()
    assert tokenized(hooked, messages) == rendered_ids(hooked, "chat", messages)
    assert count_tokens(hooked, messages, True) == len(rendered_ids(hooked, "messages", messages))


SALTED = {
    "chat": "/v1/chat/completions/render",
    "responses": "/v1/responses/render",
    "messages": "/v1/messages/render",
    "tokenize": "/tokenize",
}


@pytest.mark.parametrize("api", SALTED)
def test_a_salt_tells_tenants_apart_on_every_api_whatever_carries_it(api: str, hooked: LiveServer) -> None:
    messages = [{"role": "user", "content": f"Only the {api} test asks this."}, *recorded()[1:]]
    fields = {"messages": messages} if api == "tokenize" else body(api, messages)

    def newly_removed(salt: str, *, by_header: bool) -> float:
        """What the last turn brings counts where it is first met: again under another salt, not under the same."""
        carried = {} if by_header else {"cache_salt": salt}
        with hooked.client() as client:
            headers = {"x-lam": "true"} | ({"x-lam-cache-salt": salt} if by_header else {})
            before = client.get("/v1/lam/status").json()["tokens_removed"]["l0"]
            client.post(
                SALTED[api], json={"model": SERVED_NAME, **fields, **carried}, headers=headers
            ).raise_for_status()
            after = client.get("/v1/lam/status").json()["tokens_removed"]["l0"]
        return float(after - before)

    first = newly_removed("one", by_header=False)
    assert first > 300
    assert newly_removed("one", by_header=False) == newly_removed("one", by_header=True) == 0
    assert newly_removed("two", by_header=True) == newly_removed("three", by_header=False) == first


def test_the_report_header_and_the_metrics_tell_the_same_story(hooked: LiveServer) -> None:
    def metric(name: str) -> float:
        with hooked.client() as client:
            lines = client.get("/metrics").text.splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)), 0.0)

    name = 'lam:requests_total{api="chat",outcome="changed",reason="none"}'
    seconds = 'lam:time_to_first_token_seconds_count{api="chat",outcome="changed"}'
    before = (metric(name), metric(seconds))
    fields = {"model": SERVED_NAME, "stream": True, **body("chat", recorded())}
    with hooked.client() as client:
        answer = client.post("/v1/chat/completions", json=fields)
    report = json.loads(answer.headers["x-lam-report"])
    assert report["outcome"] == "changed"
    assert report["prefilled_tokens"] == len(rendered_ids(hooked, "chat", recorded()))
    assert abs(report["original_tokens"] - len(rendered_ids(hooked, "chat", recorded(), False))) <= 8
    assert (metric(name), metric(seconds)) == (before[0] + 2, before[1] + 1)  # the first ids were rendered here too


def test_truncated_requests_go_through_as_they_came(hooked: LiveServer) -> None:
    with openai_client(hooked) as client:
        answer = client.chat.completions.with_raw_response.create(
            model=SERVED_NAME, **body("chat", recorded()), extra_body={"truncate_prompt_tokens": 512}
        )
    assert json.loads(answer.headers["x-lam-report"])["reasons"] == {"truncation": 1}
    assert answer.parse().usage.prompt_tokens == 512


def test_a_dry_run_shows_what_a_request_would_hold(hooked: LiveServer) -> None:
    with hooked.client() as client:
        result = client.post("/v1/lam/compact", json={"messages": recorded()}).json()
    prompt = rendered_ids(hooked, "chat", result["messages"], options=False)
    assert prompt == rendered_ids(hooked, "chat", recorded())
