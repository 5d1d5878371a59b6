"""A real Redis that is killed, that never answers, and what can be read of its keys."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from lam_vllm.errors import MissingExtraError, OptionError
from lam_vllm.records import open_records
from lam_vllm.stores import StoreError, StoreSettings, open_rows
from lam_vllm.stores.base import KINDS
from lam_vllm.stores.behind import RowsBehind
from lam_vllm.stores.redis import RedisRows
from lam_vllm.stores.redis_scripts import STEP
from tests.ports import free_port
from tests.redis_server import RedisServer
from tests.stores.conftest import GROUPS, RETENTION, Errors, get, get_or_error, row, tries

KEY = b"k" * 32


def rows_of(url: str) -> RedisRows:
    return RedisRows(url, "records", 1_000_000, RETENTION)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that a test may kill."""
    server = RedisServer(tmp_path, append_only=True)
    server.start()
    yield server
    server.stop()


def test_a_server_that_is_killed_and_started_again_is_used_again(own_server: RedisServer) -> None:
    errors = Errors()
    rows = RowsBehind(rows_of(own_server.url), errors, pause_seconds=0.05)
    rows.put_many([row("a")])
    assert rows.flush(30)
    own_server.kill()
    rows.put_many([row("b")])
    assert get(rows, "b") == [b"b"]
    assert get_or_error(rows, "a") == "an error"
    for _ in tries():
        if errors.total >= 3:
            break
    own_server.start()
    assert rows.flush(30)
    for _ in tries():
        if get_or_error(rows, "a", "b") == [b"a", b"b"]:
            break
    before = errors.total
    rows.put_many([row("c")])
    assert rows.flush(30)
    assert get(rows, "a", "b", "c", "d") == [b"a", b"b", b"c", None]
    assert errors.total == before
    rows.check_integrity()
    rows.close()


def test_a_connection_that_was_cut_meanwhile_is_no_error(redis_server: RedisServer) -> None:
    rows = rows_of(redis_server.url)
    rows.put_many([row("a")])
    with redis_server.client() as client:
        client.client_kill_filter(_type="normal", skipme=True)
        client.script_flush()
    assert get(rows, "a") == [b"a"]
    rows.put_many([row("b")])
    assert get(rows, "a", "b") == [b"a", b"b"]
    rows.close()


def test_a_server_that_accepts_and_never_answers_costs_one_time_limit_and_is_left_alone(
    own_server: RedisServer,
) -> None:
    errors = Errors()
    rows = RowsBehind(rows_of(own_server.url), errors, pause_seconds=1_000.0)
    rows.put_many([row("a")])
    assert rows.flush(30)
    own_server.pause()
    try:
        for asked in range(1, 100):
            assert get_or_error(rows, "a") == "an error"
            rows.put_many([row(f"more {asked}")])
            assert get(rows, f"more {asked}") == [f"more {asked}".encode()]
        assert 99 <= errors.total <= 100
        with pytest.raises(StoreError):
            rows.delete_group(GROUPS[0])
    finally:
        own_server.go_on()
        rows.close()


def test_a_listener_that_says_nothing_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        rows = rows_of(f"redis://127.0.0.1:{listener.getsockname()[1]}")
        for use in (lambda: get(rows, "a"), lambda: rows.put_many([row("a")]), rows.refresh, rows.check_integrity):
            with pytest.raises(StoreError):
                use()
        rows.close()


def test_nobody_there_and_a_name_that_is_none_are_errors() -> None:
    for url in (f"redis://127.0.0.1:{free_port()}", "redis://no-such-host.invalid"):
        with pytest.raises(StoreError):
            get(rows_of(url), "a")


def test_a_server_without_memory_is_an_error_until_it_has_some(own_server: RedisServer) -> None:
    rows = rows_of(own_server.url)
    rows.put_many([row("a")])
    with own_server.client() as client:
        client.config_set("maxmemory", 1)
        with pytest.raises(StoreError):
            rows.put_many([row("b")])
        assert get(rows, "a", "b") == [b"a", None]
        client.config_set("maxmemory", 0)
    rows.put_many([row("b")])
    assert get(rows, "a", "b") == [b"a", b"b"]
    rows.close()


def test_books_that_the_server_dropped_are_put_right_again(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        for lost in ("age", "book"):
            client.flushall()
            rows = RedisRows(redis_server.url, "records", 1_000, RETENTION)
            rows.put_many([row("a", bytes(300)), row("b", bytes(200))])
            client.delete(f"lam:1:{{lam}}:records:{lost}")
            rows.refresh()
            rows.check_integrity()
            for number in range(8):
                rows.put_many([row(f"new {number}", bytes(300))])
            assert rows.nbytes == 1_000
            assert get(rows, "new 6", "new 7") == [bytes(300)] * 2
            rows.check_integrity()
            rows.close()


def test_names_of_keys_hold_hashes_and_every_key_expires(redis_server: RedisServer) -> None:
    settings = StoreSettings(redis_server.url, 1_000_000, RETENTION)
    with redis_server.client() as client:
        client.flushall()
        errors = Errors()
        records = open_records(settings, KEY, errors)
        identity = records.put("the salt", "a removed text")
        for _ in tries():
            if client.keys("*row:*"):
                break
        names = sorted(name.decode() for name in client.keys("*"))
        assert [re.sub("[0-9a-f]{32}$", "HASH", name) for name in names] == [
            "lam:1:{lam}:records:age",
            "lam:1:{lam}:records:book",
            "lam:1:{lam}:records:row:HASH",
            "lam:1:{lam}:records:tenant:HASH",
        ]
        assert not any(part in name for name in names for part in (identity[:32], identity[32:]))
        assert all(0 < client.pttl(name) <= 1_000 * RETENTION for name in names)
        records.close()
        other = open_records(settings, KEY, errors)
        assert other.look_up("the salt", identity).text == "a removed text"
        foreign = open_records(settings, b"x" * 32, errors)
        assert foreign.look_up("the salt", identity).text is None
        assert errors.total == 0
        other.close()
        foreign.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The URL of a cluster of one node, which takes no command over keys of two slots."""
    port, bus = free_port(), free_port()
    process = subprocess.Popen(
        ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", str(tmp_path),
         "--cluster-enabled", "yes", "--cluster-port", str(bus), "--logfile", "cluster.log"],
    )  # fmt: skip
    try:
        with redis.Redis(port=port) as client:
            for _ in tries():
                with suppress(redis.exceptions.ConnectionError):
                    if client.ping():
                        break
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16_383)
            for _ in tries():
                if b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"):
                    break
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def test_in_a_cluster_a_tenant_goes_from_every_kind_of_row(cluster: str) -> None:
    records, *others = (RedisRows(cluster, kind, 1_000_000, RETENTION) for kind in KINDS)
    records.put_many([row("a"), row("b", group=GROUPS[1])])
    for rows in others:
        rows.put_many([row("a")])
    assert records.delete_group(GROUPS[0]) == 1
    assert get(records, "a", "b") == [None, b"b"]
    assert [get(rows, "a") for rows in others] == [[None]] * len(others)
    for rows in (records, *others):
        rows.refresh()
        rows.check_integrity()
        rows.close()


def scripts_run(client: Any) -> int:
    """How many scripts the server ran since its statistics were reset."""
    calls: int = client.info("commandstats")["cmdstat_evalsha"]["calls"]
    return calls


def grow_old(client: Any) -> None:
    client.zadd("lam:1:{lam}:records:age", dict.fromkeys(client.zrange("lam:1:{lam}:records:age", 0, -1), 1))


@pytest.mark.parametrize("how", ["deleted", "over a smaller cap", "too old"])
def test_no_script_drops_more_than_a_step_and_all_go(how: str, redis_server: RedisServer) -> None:
    number = 2 * STEP + 500
    with redis_server.client() as client:
        client.flushall()
        rows, other = rows_of(redis_server.url), RedisRows(redis_server.url, "embeddings", 1_000_000, RETENTION)
        rows.put_many([row(f"row {place}") for place in range(number)])
        other.put_many([row("a"), row("b", group=GROUPS[1])])
        rows.delete_group(GROUPS[2])  # the server knows every script by now
        client.config_resetstat()
        if how == "deleted":
            assert rows.delete_group(GROUPS[0]) == number
            assert get(other, "a", "b") == [None, b"b"]
        elif how == "too old":
            grow_old(client)
            rows.refresh()
        else:
            RedisRows(redis_server.url, "records", 0, RETENTION).refresh()
        assert scripts_run(client) == 3
        assert not list(client.scan_iter("*:records:row:*"))
        rows.refresh()
        assert rows.nbytes == 0
        rows.check_integrity()
        rows.close()
        other.close()


def test_every_kind_of_url_that_is_named_can_be_used(own_server: RedisServer, tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    with own_server.client() as client:
        client.acl_setuser("lam", enabled=True, passwords=["+secret"], commands=["+@all"], keys=["*"])
    other = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", str(path), "--save", ""], cwd=tmp_path,
                             stdout=subprocess.DEVNULL)  # fmt: skip
    try:
        for _ in tries():
            if path.exists():
                break
        port = own_server.port
        for url in (f"valkey://127.0.0.1:{port}/1", f"redis://lam:secret@127.0.0.1:{port}", f"unix://{path}"):
            rows = rows_of(url)
            rows.put_many([row("a")])
            assert get(rows, "a") == [b"a"]
            rows.close()
    finally:
        other.terminate()
        other.wait(30)
    wrong = rows_of(f"redis://lam:wrong-word@127.0.0.1:{port}")
    with pytest.raises(StoreError) as caught:
        get(wrong, "a")
    assert "wrong-word" not in str(caught.value)


def test_a_url_that_the_client_cannot_read_is_an_error_that_shows_no_password() -> None:
    with pytest.raises(OptionError, match="store_url") as caught:
        open_rows(StoreSettings("redis://me:secret@host/0?socket_timeout=soon", 1, 1.0), "records", KEY, Errors())
    assert "secret" not in str(caught.value)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "redis", None)
    with pytest.raises(MissingExtraError, match=r"lam-vllm\[redis\]"):
        open_rows(StoreSettings("redis://host", 1, 1.0), "records", KEY, Errors())
