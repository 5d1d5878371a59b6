"""Where rows are kept and with which key, as the environment says it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from lam_vllm.errors import OptionError
from lam_vllm.serving.store_settings import server_key, store_settings
from lam_vllm.stores import StoreSettings
from lam_vllm.stores.sqlite import SqliteRows

WEEK = 604_800.0


def variable(name: str) -> str:
    return f"LAM_{name.upper()}"


def name_of(name: str) -> str:
    return f"--lam-{name.replace('_', '-')}"


def settings(**given: str) -> StoreSettings:
    return store_settings({variable(name): value for name, value in given.items()}, variable, name_of)


def key(environment: dict[str, str], *, required: bool = False) -> bytes:
    return server_key(environment, variable, name_of, required=required)


def test_without_a_word_the_store_is_the_memory_of_the_process() -> None:
    assert settings() == StoreSettings(None, 64_000_000, WEEK)
    assert settings(store_url="  ").label == "memory"


@pytest.mark.parametrize(
    "url",
    ["/var/lib/lam/store.sqlite", "store.sqlite", "sqlite:///var/lib/lam.db", "redis://127.0.0.1:6379/0",
     "rediss://host", "unix:///run/redis.sock", "valkey://host:6380", "redis://[::1]:6379"],
)  # fmt: skip
def test_a_url_or_a_path_is_taken_as_it_is(url: str) -> None:
    assert settings(store_url=url) == StoreSettings(url, 1_000_000_000, WEEK)
    assert settings(store_url=url).label == url


def test_the_kind_of_store_is_told_in_a_word() -> None:
    kinds = {None: "memory", "a/path": "sqlite", "sqlite:///a": "sqlite", "unix:///a": "redis", "valkey://a": "redis"}
    assert {url: StoreSettings(url, 1, 1.0).kind for url in kinds} == kinds


@pytest.mark.parametrize(
    "url",
    ["http://host", "postgres://host/db", "redis://", "sqlite://", "sqlite:///", "redis://host:port", "redis://[::1",
     "redis://host:99999", "/", "memcached:host"],
)  # fmt: skip
def test_any_other_url_is_an_error_that_names_the_setting(url: str) -> None:
    with pytest.raises(OptionError, match="--lam-store-url"):
        settings(store_url=url)


@pytest.mark.parametrize(
    ("url", "label"),
    [
        ("redis://me:secret@host:1/0", "redis://me:***@host:1/0"),
        ("redis://:secret@host", "redis://:***@host"),
        ("redis://host?password=secret", "redis://host?***"),
    ],
)
def test_no_label_shows_a_password(url: str, label: str) -> None:
    assert settings(store_url=url).label == label


def test_an_error_shows_no_password() -> None:
    for url in ("http://me:secret@host", "redis://me:secret@host:port"):
        with pytest.raises(OptionError) as caught:
            settings(store_url=url)
        assert "secret" not in str(caught.value)


def notes(path: Path) -> None:
    path.write_text("notes of a run")


def other_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE mine (a)")


def own_store(path: Path) -> None:
    rows = SqliteRows(path, "records", 1_000, 1.0)
    rows.refresh()
    rows.close()


@pytest.mark.parametrize("make", [notes, other_database, Path.mkdir])
def test_a_path_where_something_else_is_is_an_error_that_names_the_setting(
    make: Callable[[Path], object], tmp_path: Path
) -> None:
    path = tmp_path / "store"
    make(path)
    before = path.stat()
    for url in (str(path), f"sqlite://{path}"):
        with pytest.raises(OptionError, match="--lam-store-url: .*(is no regular file|is not a store)"):
            settings(store_url=url)
    assert path.stat() == before


@pytest.mark.parametrize("make", [own_store, Path.touch, Path.exists])
def test_a_path_of_a_store_or_of_nothing_is_taken(make: Callable[[Path], object], tmp_path: Path) -> None:
    make(tmp_path / "store")
    assert settings(store_url=str(tmp_path / "store")).kind == "sqlite"


def test_a_path_that_cannot_be_looked_at_now_is_taken(tmp_path: Path) -> None:
    notes(tmp_path / "file")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path in (tmp_path / "file" / "store", loop / "store", tmp_path / ("too long" * 100)):
        assert settings(store_url=str(path)).url == str(path)


def test_bytes_and_seconds_are_numbers() -> None:
    found = settings(store_bytes="5000", store_retention_seconds="0.5")
    assert (found.max_bytes, found.retention_seconds) == (5_000, 0.5)
    assert settings(store_bytes="0").max_bytes == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("store_bytes", "-1"), ("store_bytes", "1.5"), ("store_bytes", "much"), ("store_retention_seconds", "0"),
     ("store_retention_seconds", "-1"), ("store_retention_seconds", "inf"), ("store_retention_seconds", "nan"),
     ("store_retention_seconds", "a week")],
)  # fmt: skip
def test_anything_else_is_an_error_that_names_the_setting(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=name_of(name)):
        settings(**{name: value})


def test_a_key_of_the_environment_or_a_file_is_the_same_in_every_process(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"a secret of 24 bytes: xyz\n")
    from_file = key({"LAM_KEY_FILE": str(file)})
    assert from_file == key({"LAM_KEY": "a secret of 24 bytes: xyz"}, required=True)
    assert from_file != key({"LAM_KEY": "another secret of 24 bytes"})
    assert len(from_file) == 32
    assert key({"LAM_KEY": "a" * 16, "LAM_KEY_FILE": str(file)}) == key({"LAM_KEY": "a" * 16})
    assert len(key({"LAM_KEY": "a" * 100_000})) == 32


def test_a_process_alone_needs_no_key_and_has_one_of_its_own() -> None:
    assert len(key({})) == 32
    assert key({}) != key({})


def test_a_key_that_is_needed_and_missing_is_an_error_that_says_how_to_give_it() -> None:
    with pytest.raises(OptionError, match="--lam-key-file.*LAM_KEY"):
        key({}, required=True)
    with pytest.raises(OptionError):
        key({"LAM_KEY": "  "}, required=True)


def test_a_key_that_is_too_short_or_cannot_be_read_is_an_error_that_does_not_show_it(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="15 bytes") as caught:
        key({"LAM_KEY": "short secret :)"})
    assert "short" not in str(caught.value)
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(OptionError, match="--lam-key-file"):
        key({"LAM_KEY_FILE": str(empty)})
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(OptionError, match="--lam-key-file"):
            key({"LAM_KEY_FILE": str(path)})
