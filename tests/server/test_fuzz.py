"""A thousand requests that no client would send, the same in every run: nothing breaks, and nothing stays broken."""

from __future__ import annotations

from dataclasses import replace

import httpx

from tests.server.asking import have_text_kept
from tests.server.books import books
from tests.server.clients import rendered_ids
from tests.server.conftest import MEMO_BYTES, STORE_BYTES, LiveServer
from tests.server.fuzz_judge import fuzz, told
from tests.server.fuzzing import mutated
from tests.server.steady import steady_client
from tests.server.talks import recorded
from tests.server.waiting import wait_for

SEED = 9
"""Its requests hold what the plugin once failed on: a part whose type is a list, an option with half a character."""
REQUESTS = 1_000
GENERATED = 100
APIS = ("chat", "responses", "messages")
MEMOS = 3
"""Memos, each under its cap: of prefixes in the server and in its worker, and of embeddings there."""
FILLING_TEXTS, FILLING_LINES = 12, 1_000
"""More than the store may hold."""


def test_a_seed_names_its_requests() -> None:
    requests = list(mutated(SEED, 200, 20))
    assert requests == list(mutated(SEED, 200, 20))
    assert requests != list(mutated(SEED + 1, 200, 20))
    assert sum(request.is_generated for request in requests) == 20


def fill_store(client: httpx.Client) -> None:
    """Have the store drop something for whatever it keeps from now on."""
    for number in range(FILLING_TEXTS):
        have_text_kept(client, FILLING_LINES, f"filling {number}")
    wait_for(lambda: books(client).store_bytes > 0.8 * STORE_BYTES)


def test_no_body_makes_the_plugin_fail(plain: LiveServer, hooked: LiveServer) -> None:
    messages = recorded()
    normal = [rendered_ids(hooked, api, messages) for api in APIS]
    with steady_client(hooked.url, hooked.headers) as client, steady_client(plain.url) as alone:
        fill_store(client)
        before = books(client)
        verdict = fuzz(client, alone, seed=SEED, count=REQUESTS, generated=GENERATED)
        after = books(client)

    assert not verdict.findings, "\n".join(told(verdict.findings))
    assert replace(after, memo_bytes=0, store_bytes=0) == replace(before, memo_bytes=0, store_bytes=0)
    assert 0.9 * MEMO_BYTES < after.memo_bytes <= MEMOS * MEMO_BYTES  # they were filled, and kept to their caps
    assert after.store_bytes <= after.store_cap_bytes == STORE_BYTES
    assert [rendered_ids(hooked, api, messages) for api in APIS] == normal
    assert sum(verdict.statuses.values()) == REQUESTS
    assert 0 < verdict.generated <= GENERATED
