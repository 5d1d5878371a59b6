"""`lam-vllm service` as a process: what it answers, whom it answers, and how it goes down."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from lam_vllm.compactor import Compactor
from lam_vllm.config import CompactorConfig
from lam_vllm.encoders.base import BatchEncoder
from tests.conftest import SERVED_MODEL, measured_before
from tests.service.conftest import STOP_SECONDS, Running, Start, until
from tests.serving.fakes import TEXT, agent_messages

PROMETHEUS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
REPEATED = agent_messages(TEXT, TEXT)
LONGER = [*REPEATED, {"role": "assistant", "content": "done"}]


def compacted(client: httpx.Client, messages: Any = REPEATED, **fields: Any) -> dict[str, Any]:
    """What /v1/lam/compact answers."""
    answer = client.post("/v1/lam/compact", json={"messages": messages, **fields})
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


def requests(service: Running, outcome: str, reason: str) -> float:
    return service.metric("lam:requests_total", api="compact", outcome=outcome, reason=reason)


def test_it_compacts_knows_the_conversation_and_counts_all_of_it(start: Start, count_tokens: Any) -> None:
    service = start()
    with service.client() as client:
        first, second = compacted(client), compacted(client, LONGER)
        status = client.get("/v1/lam/status").json()
    expected = Compactor(CompactorConfig(profile="exact"), count_tokens).compact(REPEATED)
    assert first["messages"] == expected.messages
    assert (first["outcome"], first["reason"]) == ("changed", "none")
    assert second["report"]["work"]["known_messages"] == len(REPEATED)
    assert (status["default"], status["profile"], status["vllm_version"]) == ("on", "exact", None)
    assert requests(service, "changed", "none") == 2
    until(lambda: service.metric("lam:removal_ratio_count") == 2, "both requests are settled")
    saved = sum(result["report"]["saved_tokens"] for result in (first, second))
    original = service.metric("lam:prompt_tokens_original_total", api="compact")
    assert original - service.metric("lam:prompt_tokens_prefilled_total", api="compact") == saved > 0
    removed = service.metric("lam:tokens_removed_total", layer="l0")
    assert removed == first["report"]["removed_tokens"]["l0"]


def test_guarded_runs_in_a_worker_process_of_its_own(
    start: Start, encoder: BatchEncoder, count_tokens: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cache = measured_before(encoder, tmp_path_factory.mktemp("cache"))
    service = start("--lam-encoder", "minilm", "--lam-threads=1", XDG_CACHE_HOME=str(cache))
    messages = agent_messages(TEXT, TEXT.replace("line 20 ", "line 20, changed, "))
    with service.client() as client:
        result = compacted(client, messages)
        status = client.get("/v1/lam/status").json()
        assert client.post("/v1/lam/warm", json={"text": TEXT, "wait": True}).json()["done"] is True
    expected = Compactor(CompactorConfig(profile="guarded"), count_tokens, encoder).compact(messages)
    assert result["messages"] == expected.messages
    assert result["report"]["profile"] == status["profile"] == "guarded"
    assert status["encoder"]["process"] not in (None, service.process.pid)
    assert service.stop() == 0


WRONG: list[dict[bytes, bytes]] = [
    {},
    {b"Authorization": b"Bearer wrong"},
    {b"Authorization": b"sesame"},
    {b"Authorization": b"Bearer"},
    {b"Authorization": "Bearer €".encode()},
    {b"Authorization": "Bearer Schlüssel".encode("latin-1")},
    {b"Authorization": b"Bearer \xff"},
]
"""Headers that show no key of the service's."""


def test_with_a_key_v1_is_for_those_who_show_it_and_the_metrics_for_everybody(start: Start) -> None:
    service = start("--api-key=sesame", "--api-key=Schlüssel")
    paths = ("/v1/lam/status", "/v1/lam/tool", "/v1/lam/records/any")
    with service.client() as client:
        for shown in WRONG:
            for path in paths:
                answer = client.get(path, headers=shown)
                assert (answer.status_code, answer.json()) == (401, {"error": "Unauthorized"})
            assert client.post("/v1/lam/compact", json={"messages": []}, headers=shown).status_code == 401
            assert client.delete("/v1/lam/records", headers=shown).status_code == 401
        for key in ("sesame", "Schlüssel"):
            shown = {b"Authorization": f"bearer {key}".encode()}
            assert client.get("/v1/lam/status", headers=shown).status_code == 200
        assert client.get("/health").json() == {"status": "ok"}
        metrics = client.get("/metrics", headers={"Accept": PROMETHEUS})
    assert metrics.headers["content-type"].startswith("text/plain")
    assert 'lam:prefix_breaks_total{cause="defect"} 0.0' in metrics.text


def open_request(service: Running, body: bytes) -> socket.socket:
    """A request whose body the service waits for: its headers are there, and it has been told to go on."""
    host, _, port = service.url.removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)), timeout=STOP_SECONDS)
    head = (
        "POST /v1/lam/compact HTTP/1.1\r\nHost: service\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
    )
    connection.sendall(head.encode())
    assert connection.recv(1_000).startswith(b"HTTP/1.1 100")
    return connection


def read_all(connection: socket.socket) -> bytes:
    pieces = []
    while piece := connection.recv(65_536):
        pieces.append(piece)
    return b"".join(pieces)


def test_sigterm_answers_what_is_under_way_and_ends_well(start: Start) -> None:
    service, body = start(), json.dumps({"messages": REPEATED}).encode()
    with open_request(service, body) as connection:
        service.process.send_signal(signal.SIGTERM)
        until(lambda: "Shutting down" in service.log.read_text(), "the service has begun to go down")
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{service.url}/health")
        connection.sendall(body)
        head, _, answer = read_all(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert json.loads(answer)["outcome"] == "changed"
    assert service.wait() == 0
    assert "Traceback" not in service.log.read_text()


def test_settings_come_from_a_file_and_the_key_from_the_environment(start: Start, tmp_path: Path) -> None:
    config = tmp_path / "lam.yaml"
    config.write_text("enabled: false\n")
    tokenizer = SERVED_MODEL / "tokenizer.json"
    service = start(f"--lam-config={config}", f"--tokenizer={tokenizer}", VLLM_API_KEY="sesame")
    with service.client() as client:
        assert client.get("/v1/lam/status").status_code == 401
    with service.client(Authorization="Bearer sesame") as client:
        assert compacted(client)["outcome"] == "passed_through"
        assert compacted(client, lam=True)["outcome"] == "changed"
