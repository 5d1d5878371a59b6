"""What a service keeps: over restarts, for one tenant only, and while its file cannot be used."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.redis_server import RedisServer
from tests.service.conftest import KEY, STOP_SECONDS, Running, Start, until
from tests.serving.fakes import TEXT, agent_messages

REPEATED = agent_messages(TEXT, TEXT)


def started(start: Start, store: Path) -> Running:
    return start(f"--lam-store-url={store}", LAM_KEY=KEY)


def kept(client: httpx.Client, salt: str, text: str = TEXT, **fields: Any) -> str | None:
    """The id of a text that is removed under this salt."""
    body = {"messages": agent_messages(text, text), "cache_salt": salt, **fields}
    (entry,) = client.post("/v1/lam/compact", json=body).raise_for_status().json()["decisions"]
    record: str | None = entry["record"]
    return record


def look_up(client: httpx.Client, record: str | None, salt: str) -> int:
    return client.get(f"/v1/lam/records/{record}", headers={"x-lam-cache-salt": salt}).status_code


def stored_bytes(client: httpx.Client) -> int:
    held: int = client.get("/v1/lam/status").raise_for_status().json()["store"]["bytes"]
    return held


def test_text_outlives_a_killed_server_and_belongs_to_its_tenant(start: Start, tmp_path: Path) -> None:
    store = tmp_path / "kept" / "store.sqlite"
    first = started(start, store)
    with first.client() as client:
        record = kept(client, "one")
        until(lambda: stored_bytes(client) > 0, "the text is in the file")
    first.process.kill()
    first.process.wait(STOP_SECONDS)
    second = started(start, store)
    with second.client() as client:
        assert look_up(client, record, "one") == 200
        assert look_up(client, record, "two") == look_up(client, record, "") == 404
        assert kept(client, "one") == record
        assert kept(client, "two") != record
        for deleted in (1, 0):
            answer = client.delete("/v1/lam/records", headers={"x-lam-cache-salt": "one"})
            assert answer.json() == {"deleted": deleted}
        assert look_up(client, record, "one") == 410
        assert look_up(client, record, "two") == 404
    assert second.metric("lam:lookups_total", result="expired") == 1
    assert second.stop() == 0
    assert {path.stat().st_mode & 0o777 for path in store.parent.iterdir()} == {0o600}


def test_another_key_knows_nothing_of_what_is_kept(start: Start, tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite"
    with started(start, store).client() as client:
        record = kept(client, "one")
        until(lambda: stored_bytes(client) > 0, "the text is in the file")
    with start(f"--lam-store-url={store}", LAM_KEY=KEY[::-1]).client() as client:
        assert look_up(client, record, "one") == 404


def test_nothing_is_kept_of_a_request_that_says_so(start: Start, tmp_path: Path) -> None:
    with started(start, tmp_path / "store.sqlite").client() as client:
        assert kept(client, "one", lam={"store": False}) is None
        record = kept(client, "two", TEXT + "\nanother text")
        until(lambda: stored_bytes(client) > 0, "the other text is in the file")
        assert client.delete("/v1/lam/records", headers={"x-lam-cache-salt": "one"}).json() == {"deleted": 0}
        assert look_up(client, record, "two") == 200


def errors(service: Running) -> float:
    return service.metric("lam:store_errors_total", store="records")


def works(client: httpx.Client, text: str) -> bool:
    """Whether a text that is removed now can be looked up from the store itself."""
    before = stored_bytes(client)
    record = kept(client, "works", text)
    until(lambda: stored_bytes(client) > before, f"{text[-20:]!r} is in the store")
    return look_up(client, record, "works") == 200


def test_a_damaged_file_is_counted_and_replaced_while_requests_are_answered(start: Start, tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite"
    service = started(start, store)
    with service.client() as client:
        assert works(client, TEXT)
        assert errors(service) == 0
        damage(store)
        assert kept(client, "one", TEXT + "\nafter the damage") is not None
        until(lambda: errors(service) > 0, "the damage is counted")
        until(lambda: stored_bytes(client) < 2 * len(TEXT), "a new file was begun")
        assert works(client, TEXT + "\nand on")
    assert service.stop() == 0


def damage(store: Path) -> None:
    """Overwrite the file, of which no page stays in the service's memory."""
    with closing(sqlite3.connect(store)) as other:
        other.execute("UPDATE rows SET size = size")
        other.commit()
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with store.open("r+b") as file:
        file.write(os.urandom(store.stat().st_size))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, that a test may fill up or make read-only."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "lam-test", folder], check=False)
    if mounted.returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", folder], check=True)


def test_a_read_only_disk_is_counted_and_used_once_it_can_be_written(start: Start, small_disk: Path) -> None:
    remount(small_disk, "ro")
    service = started(start, small_disk / "store.sqlite")
    with service.client() as client:
        record = kept(client, "one")
        until(lambda: errors(service) > 0, "the read-only disk is counted")
        assert look_up(client, record, "one") == 200  # it waits to be written
        remount(small_disk, "rw")
        assert works(client, TEXT + "\nit can be written")
        assert look_up(client, record, "one") == 200
    assert service.stop() == 0


def test_a_full_disk_is_counted_and_used_again_once_there_is_room(start: Start, small_disk: Path) -> None:
    service = started(start, small_disk / "store.sqlite")
    with service.client() as client:
        assert works(client, TEXT)
        fill(small_disk)
        record = kept(client, "one", TEXT + "\n" + "on a full disk " * 4_000)
        until(lambda: errors(service) > 0, "the full disk is counted")
        assert look_up(client, record, "one") == 200  # it waits to be written
        (small_disk / "ballast").unlink()
        assert works(client, TEXT + "\nthere is room again")
    assert service.stop() == 0


def fill(folder: Path) -> None:
    with (folder / "ballast").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4_096))
        except OSError:
            pass


def test_two_services_share_a_redis_and_outlast_it(start: Start, redis_server: RedisServer) -> None:
    here, there = (start(f"--lam-store-url={redis_server.url}", LAM_KEY=KEY) for _ in range(2))
    with here.client() as client, there.client() as other:
        record = kept(client, "one")
        until(lambda: look_up(other, record, "one") == 200, "the other service finds the text")
        assert look_up(other, record, "two") == 404
        redis_server.kill()
        assert {look_up(other, identity, "one") for identity in (record, "unknown")} == {503}
        lost = kept(client, "one", TEXT + "\nwithout a store")
        until(lambda: errors(here) > 0 and errors(there) > 0, "what cannot be reached is counted")
        redis_server.start()
        until(lambda: look_up(other, lost, "one") == 200, "what waited is in the store")
        until(lambda: look_up(other, record, "one") == 200, "what was kept is found again")
    assert (here.stop(), there.stop()) == (0, 0)
