"""A thousand requests that no client would send, the same in every run: nothing breaks, and nothing stays broken."""

from __future__ import annotations

from dataclasses import replace

from lam_vllm.compactors import MEMO_BYTES
from tests.server.books import books
from tests.server.clients import rendered_ids
from tests.server.conftest import LiveServer
from tests.server.fuzz_judge import fuzz, told
from tests.server.fuzzing import mutated
from tests.server.steady import steady_client
from tests.server.talks import recorded

SEED = 9
"""Its requests hold what the plugin once failed on: a part whose type is a list, an option with half a character."""
REQUESTS = 1_000
GENERATED = 100
APIS = ("chat", "responses", "messages")
MEMOS = 3
"""Memos, each under its cap: of prefixes in the server and in its worker, and of embeddings there."""


def test_a_seed_names_its_requests() -> None:
    requests = list(mutated(SEED, 200, 20))
    assert requests == list(mutated(SEED, 200, 20))
    assert requests != list(mutated(SEED + 1, 200, 20))
    assert sum(request.is_generated for request in requests) == 20


def test_no_body_makes_the_plugin_fail(plain: LiveServer, hooked: LiveServer) -> None:
    messages = recorded()
    normal = [rendered_ids(hooked, api, messages) for api in APIS]
    with steady_client(hooked.url, hooked.headers) as client, steady_client(plain.url) as alone:
        before = books(client)
        verdict = fuzz(client, alone, seed=SEED, count=REQUESTS, generated=GENERATED)
        after = books(client)

    assert not verdict.findings, "\n".join(told(verdict.findings))
    assert replace(after, memo_bytes=0, store_bytes=0) == replace(before, memo_bytes=0, store_bytes=0)
    assert after.memo_bytes <= MEMOS * MEMO_BYTES and after.store_bytes <= after.store_cap_bytes
    assert [rendered_ids(hooked, api, messages) for api in APIS] == normal
    assert sum(verdict.statuses.values()) == REQUESTS
    assert 0 < verdict.generated <= GENERATED
