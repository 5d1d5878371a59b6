from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lam_vllm.records import RecordStore

KEY = b"k" * 32


def test_a_record_comes_back_under_its_own_salt_only() -> None:
    store = RecordStore(10_000, KEY)
    identity = store.put("tenant", "removed text")
    assert store.get("tenant", identity) == "removed text"
    assert store.get("other", identity) is None
    assert store.get("tenant", "0" * 32) is None
    assert store.get("tenant", "no hex, \ud800") is None


def test_an_id_says_nothing_without_the_key_and_differs_by_salt() -> None:
    same = RecordStore(10_000, KEY).put("tenant", "text")
    assert RecordStore(10_000, KEY).put("tenant", "text") == same
    assert RecordStore(10_000, b"x" * 32).put("tenant", "text") != same
    assert RecordStore(10_000, KEY).put("other", "text") != same
    assert RecordStore(10_000, KEY).put("tenantt", "ext") != same


def test_the_least_recently_used_record_goes_first() -> None:
    store = RecordStore(700, KEY)
    first, second = store.put("", "a" * 100), store.put("", "b" * 100)
    store.get("", first)
    store.put("", "c" * 100)
    assert (store.get("", first), store.get("", second)) == ("a" * 100, None)


def test_text_larger_than_the_store_is_not_kept() -> None:
    store = RecordStore(1_000, KEY)
    assert store.get("", store.put("", "a" * 1_000)) is None
    store.check_integrity()


@given(st.lists(st.tuples(st.sampled_from(["", "a", "b"]), st.text(max_size=400)), max_size=30))
def test_bytes_charged_are_the_bytes_held_after_every_change(records: list[tuple[str, str]]) -> None:
    store = RecordStore(1_500, KEY)
    for salt, text in records:
        store.put(salt, text)
        store.check_integrity()
