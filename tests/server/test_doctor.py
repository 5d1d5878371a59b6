"""`lam-vllm doctor` against real servers: with the plugin and a key, and without the plugin."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from lam_vllm.cli import app
from lam_vllm.commands.doctor import examine
from lam_vllm.commands.doctor_ask import Asked
from lam_vllm.commands.doctor_finding import Finding
from lam_vllm.commands.doctor_self_test import self_test
from tests.server.clients import rendered_ids
from tests.server.conftest import SERVED_NAME, LiveServer
from tests.server.fleet import Fleet
from tests.server.talks import recorded


def found(findings: list[Finding], what: str) -> list[Finding]:
    return [finding for finding in findings if finding.what == what]


def test_the_plugin_is_there_and_its_self_test_passes(hooked: LiveServer) -> None:
    rendered_ids(hooked, "chat", recorded(), options=None)
    findings = examine(hooked.url, hooked.api_key)
    assert [finding.found for finding in found(findings, "plugin")] == ["active"]
    assert [finding.found for finding in found(findings, "server: encoder name")] == ["minilm"]
    assert [finding.found for finding in found(findings, "self-test: exact")] == ["passed"]
    assert not any(finding.wrong for finding in [*found(findings, "metrics"), *found(findings, "prefix breaks")])
    assert not found(findings, "metrics of all processes")[0].wrong
    assert "requests changed" in found(findings, "traffic")[0].found


def test_the_profile_of_an_encoder_passes_its_self_test(hooked: LiveServer) -> None:
    for profile in ("guarded", "paper"):
        results = list(self_test(Asked(hooked.url, hooked.api_key), profile))
        assert [result.what for result in results] == [f"self-test: {profile}", "self-test: exact"]
        assert [result.found for result in results] == ["passed", "passed"], results


@pytest.mark.parametrize(("key", "why"), [(None, "none was given"), ("wrong", "not one of the server's")])
def test_without_the_right_key_it_says_so_and_ends_with_1(hooked: LiveServer, key: str | None, why: str) -> None:
    given = ["--api-key", key] if key else []
    done = CliRunner().invoke(app, ["doctor", "--url", hooked.url, *given], env={"COLUMNS": "250", "LAM_API_KEY": ""})
    assert done.exit_code == 1
    assert "401 for /v1/lam/status" in done.stdout and why in done.stdout


def test_a_server_without_the_plugin_is_told_with_the_usual_causes(plain: LiveServer) -> None:
    done = CliRunner().invoke(app, ["doctor", "--url", plain.url], env={"COLUMNS": "250"})
    assert done.exit_code == 1
    for words in ("404 for /v1/lam/status", "VLLM_PLUGINS", "entry point", "lam-vllm serve MODEL"):
        assert words in done.stdout


def test_both_processes_of_a_server_are_met_and_their_counts_are_one_sum(fleet: Fleet) -> None:
    with fleet.clients() as clients:  # a request to each
        for client in clients.values():
            body = {"model": SERVED_NAME, "messages": recorded()}
            client.post("/v1/chat/completions/render", json=body).raise_for_status()
    findings = examine(fleet.server.url)
    (plugin,) = found(findings, "plugin")
    assert plugin.why == "/v1/lam/status answers; met 2 of its 2 processes"
    (summed,) = found(findings, "metrics of all processes")
    assert not summed.wrong and summed.why == "one sum over 2 processes"
    workers = [finding.found for finding in found(findings, "server: encoder process")]
    assert len(set(workers)) == len(clients) == 2
    assert [finding.found for finding in findings if finding.what.startswith("self-test")] == ["passed", "passed"]
