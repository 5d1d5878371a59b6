"""Several API processes and engines are one server: the same bytes, one switch, one store, one set of metrics."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest

from lam_vllm.bound import delta_of
from lam_vllm.stores.hashes import group_of
from lam_vllm.stores.redis import RedisRows
from lam_vllm.types import Message
from tests.server.asking import fleet_key, look_up, removed_record, render, samples
from tests.server.clients import Request, Usage, ask_chat_stream, rendered_ids
from tests.server.conftest import BLOCK_TOKENS, MODEL, SERVE, SERVED_NAME, LiveServer, server_environment
from tests.server.fleet import ENGINES, PROCESSES, STORE_BYTES, Fleet, status
from tests.server.talks import TOO_LONG_MESSAGES, body, by_user, recorded, turns
from tests.server.waiting import stopped, wait_for

GUARDED = {"profile": "guarded"}
MANY_MESSAGES = 27
"""To the end of the run."""
CREATED, OWN = "_created", ("python_", "process_")
"""Metrics that prometheus_client does not add up over processes."""


def families(server: LiveServer, prefix: str) -> set[str]:
    """Names and types of the metrics whose names begin so, but for those that one process alone has."""
    with server.client() as client:
        found = re.findall(r"^# TYPE (\S+) (\S+)$", client.get("/metrics").text, re.MULTILINE)
    return {f"{name} {kind}" for name, kind in found if name.startswith(prefix) and not name.endswith(CREATED)}


def chat(client: httpx.Client, messages: list[Message], salt: str, engine: int = 0) -> Usage:
    """What this engine was given by this client's process."""
    asked = {"model": SERVED_NAME, **body("chat", messages), "cache_salt": salt}
    answer = client.post("/v1/chat/completions", json=asked, headers={"X-data-parallel-rank": str(engine)})
    usage = answer.raise_for_status().json()["usage"]
    return Usage(usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"] or 0)


def switch(client: httpx.Client, *, on: bool) -> None:
    """Set the run-time switch."""
    client.post("/v1/lam/enabled", json={"enabled": on}).raise_for_status()


def warm(client: httpx.Client, messages: list[Message], salt: str) -> dict[str, int]:
    fields = {"messages": messages, "cache_salt": salt, "wait": True}
    found: dict[str, int] = client.post("/v1/lam/warm", json=fields).raise_for_status().json()
    return found


def queue_depth(fleet: Fleet) -> float:
    with fleet.server.client() as client:
        return samples(client)["lam:queue_depth"]


def embeddings_kept(fleet: Fleet, salt: str) -> int:
    """Of this tenant, in Redis."""
    with fleet.redis.client() as client:
        rows = client.scan_iter(f"*embeddings*tenant:{group_of(fleet_key(), salt).hex()}", count=1_000)
        return sum(int(client.scard(name)) for name in rows)


def test_each_process_says_of_itself_that_it_is_one_of_two(fleet: Fleet) -> None:
    with fleet.clients() as clients:
        found = {process: status(client) for process, client in clients.items()}
    assert len(found) == PROCESSES
    assert {each["processes"] for each in found.values()} == {PROCESSES}
    assert len({each["encoder"]["process"] for each in found.values()}) == PROCESSES


def test_every_process_makes_the_bytes_of_a_server_of_one_process(fleet: Fleet, hooked: LiveServer) -> None:
    with fleet.clients() as clients, hooked.client() as one:
        fingerprints = {status(client)["encoder"]["fingerprint"] for client in (one, *clients.values())}
        assert len(fingerprints) == 1
        for turn in turns(recorded(TOO_LONG_MESSAGES)):
            expected = rendered_ids(hooked, "chat", turn, GUARDED)
            for client in clients.values():
                assert render(client, turn) == expected
    assert len(expected) < len(rendered_ids(hooked, "chat", recorded(), options=False))


@pytest.mark.parametrize("engine", range(ENGINES))
def test_each_engine_takes_from_its_cache_what_another_process_had_it_prefill(engine: int, fleet: Fleet) -> None:
    messages, salt = recorded(), f"engine {engine}"
    prefilled = f'vllm:prompt_tokens_total{{engine="{engine}",model_name="{SERVED_NAME}"}}'
    with fleet.clients() as clients:
        one, other = clients.values()
        before, expected = samples(one).get(prefilled, 0.0), len(render(one, messages))
        assert chat(one, messages, salt, engine) == Usage(expected, 0)
        assert chat(other, messages, salt, engine) == Usage(expected, expected // BLOCK_TOKENS * BLOCK_TOKENS)
        wait_for(lambda: samples(one)[prefilled] == before + 2 * expected)


def test_counters_and_histograms_are_sums_over_the_processes(fleet: Fleet) -> None:
    messages, prefilled = by_user("sums", recorded()), 'lam:prompt_tokens_prefilled_total{api="chat"}'
    counted = (
        'lam:requests_total{api="chat",outcome="changed",reason="none"}',
        'lam:compaction_seconds_count{stage="total"}',
        "lam:removal_ratio_count",
    )
    with fleet.clients() as clients:
        one, other = clients.values()
        before = samples(one)
        usages = [chat(client, messages, f"sums {place}") for place, client in enumerate((one, other, other))]
        after = samples(one)
        assert samples(other)[prefilled] == status(other)["prompt_tokens_prefilled"]["chat"] == after[prefilled]
    assert {name: after[name] - before[name] for name in counted} == dict.fromkeys(counted, 3.0)
    assert after[prefilled] - before[prefilled] == sum(usage.prompt_tokens for usage in usages)


def test_gauges_are_a_sum_a_maximum_or_one_value_as_each_of_them_means(fleet: Fleet) -> None:
    messages = by_user("gauges", recorded())
    with fleet.clients() as clients, ExitStack() as stack, ThreadPoolExecutor(PROCESSES) as threads:
        one, _ = clients.values()
        for client in clients.values():
            stack.enter_context(stopped(status(client)["encoder"]["process"]))
        asked = [threads.submit(render, client, messages) for client in clients.values()]
        wait_for(lambda: queue_depth(fleet) == PROCESSES)
        stack.close()
        assert len({tuple(each.result()) for each in asked}) == 1
        after = samples(one)
        assert after["lam:delta"] == pytest.approx(delta_of(status(one)["config"]["threshold_cos"]))
        assert 0 <= after["lam:delta_hat_max"] <= after["lam:delta"]
        assert not [name for name in after if name.startswith("lam:") and "pid=" in name]
    wait_for(lambda: queue_depth(fleet) == 0)


def test_a_store_of_all_processes_is_measured_once(fleet: Fleet) -> None:
    store = RedisRows(fleet.redis.url, "records", STORE_BYTES, 60)

    def is_told() -> bool:
        for client in clients.values():
            render(client, recorded(), cache_salt="measured")  # the gauge is set as a request ends
        store.refresh()
        return samples(one)['lam:store_bytes{store="records"}'] == store.nbytes > 0

    with fleet.clients() as clients:
        one, _ = clients.values()
        wait_for(is_told)
    store.close()


def test_the_engines_own_metrics_are_all_there(fleet: Fleet, plain: LiveServer, hooked: LiveServer) -> None:
    for place, server in enumerate((fleet.server, plain, hooked)):
        ask_chat_stream(server, Request(recorded(), f"families {place}"))
    expected = {name for name in families(plain, "") if not name.startswith(OWN)}
    assert {name for name in families(fleet.server, "") if not name.startswith("lam:")} == expected
    assert {name for name in families(hooked, "") if not name.startswith(("lam:", *OWN))} == expected
    assert families(fleet.server, "lam:") == families(hooked, "lam:")


def test_the_switch_is_one_for_all_processes(fleet: Fleet) -> None:
    messages = recorded()
    with fleet.clients() as clients:
        one, other = clients.values()
        compacted = render(one, messages)
        try:
            switch(one, on=False)
            assert [status(client)["switched_on"] for client in (one, other)] == [False, False]
            assert len(render(other, messages)) > len(compacted)
            switch(other, on=True)
            assert [status(client)["switched_on"] for client in (one, other)] == [True, True]
            assert render(one, messages) == compacted
        finally:
            for client in clients.values():
                switch(client, on=True)


def test_text_that_one_process_removed_is_found_by_every_other_under_its_salt_alone(fleet: Fleet) -> None:
    messages = by_user("kept", recorded())
    with fleet.clients() as clients:
        one, other = clients.values()
        identity = removed_record(one, messages, "kept")
        assert [look_up(client, identity, "kept").status_code for client in (one, other)] == [410, 410]
        render(one, messages, cache_salt="kept")
        wait_for(lambda: look_up(other, identity, "kept").status_code == 200)  # written off the request's path
        assert look_up(other, identity, "kept").json() == look_up(one, identity, "kept").json()
        assert [look_up(client, identity, "another's").status_code for client in (one, other)] == [404, 404]
        forgotten = other.delete("/v1/lam/records", headers={"x-lam-cache-salt": "kept"}).raise_for_status().json()
        assert forgotten["deleted"] > 0
        assert [look_up(client, identity, "kept").status_code for client in (one, other)] == [410, 410]


def test_windows_that_one_process_encoded_are_remembered_by_every_other_for_the_same_tenant(fleet: Fleet) -> None:
    """But for those that its encoder had begun with before the store had answered: nothing waits for the store."""
    messages = by_user("shared", recorded(MANY_MESSAGES))
    with fleet.clients() as clients:
        one, other = clients.values()
        encoded = warm(one, messages, "shared")
        assert encoded["encoded"] >= encoded["windows"] >= 8
        wait_for(lambda: embeddings_kept(fleet, "shared") == encoded["encoded"])
        remembered = warm(other, messages, "shared")
        assert remembered["windows"] == encoded["windows"]
        assert remembered["encoded"] < encoded["encoded"] / 2
        assert warm(other, messages, "another tenant")["encoded"] == encoded["encoded"]


def test_a_server_of_many_processes_does_not_start_without_a_key() -> None:
    command = [sys.executable, *SERVE, MODEL, "--lam-profile=exact", f"--api-server-count={PROCESSES}"]
    ended = subprocess.run(command, env=server_environment({}), capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "LAM_KEY" in ended.stderr
