"""Removed text by id: who may read it, and what an id that leads nowhere is."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lam_vllm.records import ID_LENGTH, LookUp, RecordStore, open_records
from lam_vllm.stores import Row, StoreError, StoreSettings
from lam_vllm.stores.memory import MemoryRows

KEY = b"k" * 32
GONE, UNKNOWN = LookUp(None, known=True), LookUp(None, known=False)
MALFORMED = [
    "",
    "0",
    "no hex, \ud800",
    "0" * 32,
    "g" * ID_LENGTH,
    "0" * (ID_LENGTH + 1),
    "0" * 1_000_000,
    "0 " * (ID_LENGTH // 2),
    "é" * ID_LENGTH,
]


class CountedRows(MemoryRows):
    """Rows that say how they were asked, and fail while they are told to."""

    def __init__(self) -> None:
        super().__init__(1_000_000, 1_000.0)
        self.asked: list[int] = []
        self.found: list[bool] = []
        self.failing = False

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.asked.append(len(keys))
        if self.failing:
            raise StoreError("gone")
        values = super().get_many(keys)
        self.found += [value is not None for value in values]
        return values


def store(max_bytes: int = 10_000, key: bytes = KEY) -> RecordStore:
    return open_records(StoreSettings(None, max_bytes, 1_000.0), key)


def test_a_record_comes_back_under_its_own_salt_only() -> None:
    records = store()
    identity = records.put("tenant", "removed text")
    assert records.look_up("tenant", identity) == LookUp("removed text", known=True)
    assert records.look_up("tenant", identity.upper()).text == "removed text"
    for salt in ("", "other", "tenan", "tenant "):
        assert records.look_up(salt, identity) == UNKNOWN


@given(salt=st.text(), text=st.text() | st.just("a lone \ud800 surrogate"))
def test_any_text_under_any_salt_comes_back_as_it_was(salt: str, text: str) -> None:
    records = store()
    assert records.look_up(salt, records.put(salt, text)) == LookUp(text, known=True)


def test_an_id_that_this_key_made_for_this_salt_is_known_without_its_text() -> None:
    tiny = store(0)
    identity = tiny.put("tenant", "removed text")
    assert tiny.look_up("tenant", identity) == GONE
    assert tiny.look_up("other", identity) == UNKNOWN
    assert store(key=b"x" * 32).look_up("tenant", identity) == UNKNOWN


@given(place=st.integers(0, ID_LENGTH - 1), digit=st.sampled_from("0123456789abcdef"))
def test_an_id_of_which_a_digit_is_another_is_unknown(place: int, digit: str) -> None:
    records = store()
    identity = records.put("tenant", "removed text")
    other = identity[:place] + digit + identity[place + 1 :]
    assert (records.look_up("tenant", other) == UNKNOWN) == (other != identity)


@pytest.mark.parametrize("identity", MALFORMED, ids=lambda identity: f"{len(identity)} characters")
def test_an_id_that_is_none_is_unknown(identity: str) -> None:
    assert store().look_up("tenant", identity) == UNKNOWN


def test_every_look_up_asks_the_store_once_for_one_row() -> None:
    rows = CountedRows()
    records = RecordStore(rows, KEY)
    own, foreign = records.put("tenant", "text"), records.put("other", "text")
    gone = RecordStore(MemoryRows(0, 1.0), KEY).put("tenant", "never kept here")
    for identity in (own, foreign, gone, "0" * ID_LENGTH, *MALFORMED):
        rows.asked.clear()
        records.look_up("tenant", identity)
        assert rows.asked == [1]
    assert rows.found == [True] + [False] * (3 + len(MALFORMED)), "another tenant's row is not even read"


def test_a_store_that_fails_says_of_no_id_whether_it_is_known() -> None:
    rows = CountedRows()
    records = RecordStore(rows, KEY)
    own, foreign = records.put("tenant", "text"), records.put("other", "text")
    rows.failing = True
    for identity in (own, foreign, "0" * ID_LENGTH, *MALFORMED):
        with pytest.raises(StoreError):
            records.look_up("tenant", identity)
    rows.failing = False
    assert records.look_up("tenant", own).text == "text"


def test_what_is_stored_and_is_no_text_is_counted_and_gone() -> None:
    class Spoilt(MemoryRows):
        def put_many(self, rows: Sequence[Row]) -> None:
            super().put_many([Row(row.key, row.group, b"\xff\xfe") for row in rows])

    errors: list[int] = []
    records = RecordStore(Spoilt(1_000_000, 1_000.0), KEY, errors.append)
    assert records.look_up("tenant", records.put("tenant", "text")) == GONE
    assert errors == [1]


def test_an_id_says_nothing_without_the_key_and_differs_by_salt() -> None:
    same = store().put("tenant", "text")
    assert store().put("tenant", "text") == same
    others = [store(key=b"x" * 32).put("tenant", "text"), store().put("other", "text"), store().put("tenantt", "ext")]
    for other in others:
        assert other[:32] != same[:32]
        assert other[32:] != same[32:]


def test_a_tenant_is_forgotten_and_its_ids_stay_known() -> None:
    records = store()
    first, second = records.put("tenant", "one"), records.put("tenant", "two")
    kept = records.put("other", "one")
    assert records.forget("tenant") == 2
    assert [records.look_up("tenant", identity) for identity in (first, second)] == [GONE, GONE]
    assert records.look_up("other", kept).text == "one"
    assert records.forget("tenant") == records.forget("never seen") == 0


def test_the_least_recently_used_record_goes_first() -> None:
    records = store(700)
    first, second = records.put("", "a" * 100), records.put("", "b" * 100)
    records.look_up("", first)
    records.put("", "c" * 100)
    assert (records.look_up("", first).text, records.look_up("", second)) == ("a" * 100, GONE)


def test_text_larger_than_the_store_is_not_kept() -> None:
    records = store(1_000)
    assert records.look_up("", records.put("", "a" * 1_000)) == GONE
    records.check_integrity()


@given(st.lists(st.tuples(st.sampled_from(["", "a", "b"]), st.text(max_size=400)), max_size=30))
def test_bytes_charged_are_the_bytes_held_after_every_change(texts: list[tuple[str, str]]) -> None:
    records = store(1_500)
    for salt, text in texts:
        records.put(salt, text)
        records.check_integrity()
        assert records.bytes_used <= 1_500


def test_a_text_in_a_file_is_read_by_another_store_of_the_same_key(tmp_path: Path) -> None:
    path = tmp_path / "lam" / "store.sqlite"
    settings = StoreSettings(f"sqlite://{path}", 1_000_000, 1_000.0)
    first, second = open_records(settings, KEY), open_records(settings, KEY)
    identity = first.put("tenant", "removed text")
    assert first.look_up("tenant", identity).text == "removed text"  # written or not
    first.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert second.look_up("tenant", identity).text == "removed text"
    assert second.look_up("other", identity) == UNKNOWN
    assert second.forget("tenant") == 1
    assert second.look_up("tenant", identity) == GONE
    assert identity.encode() not in path.read_bytes()
    assert bytes.fromhex(identity)[:16] not in path.read_bytes()
    second.close()
