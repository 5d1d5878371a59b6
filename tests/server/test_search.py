"""POST /v1/lam/search on real servers: what a chat brought is found by meaning, by its tenant, on every process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from lam_vllm.cli import app
from lam_vllm.types import Message
from tests.server.conftest import SERVED_NAME, LiveServer
from tests.server.fleet import Fleet
from tests.server.talks import body, with_calls
from tests.server.waiting import wait_for
from tests.serving.searched import DATABASE, QUESTION, RESULT, conversation, message_of

GUARDED = {"profile": "guarded"}


def talk(user: str) -> list[Message]:
    """The conversation of a user of these tests, as clients send it."""
    return with_calls(conversation(user))


def chat(client: httpx.Client, messages: list[Message], salt: str, **options: Any) -> str:
    """The digest that the report of a chat names, which was answered."""
    asked = {"model": SERVED_NAME, **body("chat", messages), "cache_salt": salt}
    answer = client.post("/v1/chat/completions", json=asked, headers={"x-lam": json.dumps({**GUARDED, **options})})
    report: dict[str, Any] = json.loads(answer.raise_for_status().headers["x-lam-report"])
    return str(report["prefix"])


def search(client: httpx.Client, salt: str, **asked: Any) -> httpx.Response:
    return client.post("/v1/lam/search", json={"query": QUESTION, "cache_salt": salt, **asked})


def best(answer: httpx.Response) -> dict[str, Any]:
    """The first hit."""
    hit: dict[str, Any] = answer.raise_for_status().json()["hits"][0]
    return hit


def is_found(client: httpx.Client, salt: str, digest: str) -> bool:
    return search(client, salt, prefix_digest=digest).status_code == 200


@pytest.fixture(scope="module")
def client(hooked: LiveServer) -> Iterator[httpx.Client]:
    with hooked.client() as client:
        yield client


def test_a_result_of_a_chat_is_found_by_meaning_by_its_digest_and_by_its_messages(client: httpx.Client) -> None:
    messages = talk("found")
    digest = chat(client, messages, "found")
    wait_for(lambda: is_found(client, "found", digest))
    by_digest = best(search(client, "found", prefix_digest=digest))
    by_messages = best(search(client, "found", messages=messages, lam=GUARDED))
    assert (by_digest["result"], by_digest["message"], by_digest["text"]) == (RESULT, message_of(RESULT), None)
    assert by_messages == {**by_digest, "text": DATABASE}


def test_another_salt_finds_nothing_and_learns_nothing(client: httpx.Client) -> None:
    digest = chat(client, talk("mine"), "mine")
    wait_for(lambda: is_found(client, "mine", digest))
    foreign = search(client, "yours", prefix_digest=digest)
    unknown = search(client, "yours", prefix_digest="0" * len(digest))
    assert (foreign.status_code, foreign.content) == (unknown.status_code, unknown.content)
    assert foreign.json() == {"detail": "no such index"}


def test_deleting_a_tenants_records_deletes_what_could_be_searched(client: httpx.Client) -> None:
    digests = {salt: chat(client, talk(salt), salt) for salt in ("deleted", "kept")}
    for salt, digest in digests.items():
        wait_for(lambda salt=salt, digest=digest: is_found(client, salt, digest))  # type: ignore[misc]
    client.delete("/v1/lam/records", headers={"x-lam-cache-salt": "deleted"}).raise_for_status()
    assert not is_found(client, "deleted", digests["deleted"])
    assert is_found(client, "kept", digests["kept"])


def test_nothing_is_kept_of_a_chat_that_says_so(client: httpx.Client) -> None:
    secret = chat(client, talk("secret"), "secret", store=False)
    other = chat(client, talk("other"), "secret")
    wait_for(lambda: is_found(client, "secret", other))
    assert not is_found(client, "secret", secret)


def test_the_servers_own_profile_applies_where_the_search_names_none(client: httpx.Client) -> None:
    refused = search(client, "", messages=talk("default"))
    assert refused.status_code == 400
    assert refused.json()["detail"].startswith("profile: 'exact' is not allowed; allowed: guarded, paper")


def test_the_command_asks_the_server(hooked: LiveServer, tmp_path: Path) -> None:
    runs = tmp_path / "runs.jsonl"
    runs.write_text(json.dumps({"messages": talk("command")}) + "\n")
    arguments = ["search", str(runs), QUESTION, "--url", hooked.url, "--profile", "guarded", "-k", "1", "--json"]
    done = CliRunner().invoke(app, arguments, env={"LAM_API_KEY": str(hooked.api_key)})
    assert done.exit_code == 0, done.output
    (hit,) = json.loads(done.stdout)["hits"]
    assert (hit["result"], hit["text"]) == (RESULT, DATABASE)


def test_what_one_process_indexed_is_found_by_every_other_through_the_store(fleet: Fleet) -> None:
    with fleet.clients() as clients:
        one, other = clients.values()
        digest = chat(one, talk("fleet"), "fleet")
        wait_for(lambda: is_found(other, "fleet", digest))
        answers = [search(client, "fleet", prefix_digest=digest).raise_for_status() for client in (one, other)]
        assert answers[0].json() == answers[1].json()
        assert best(answers[0])["result"] == RESULT
        assert not is_found(other, "another tenant", digest)
        one.delete("/v1/lam/records", headers={"x-lam-cache-salt": "fleet"}).raise_for_status()
        assert not any(is_found(client, "fleet", digest) for client in (one, other))
