"""What holds for rows wherever they are kept: in memory, in a file, on a server."""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lam_vllm.stores import Row
from lam_vllm.stores.base import ROW_BYTES
from tests.stores.conftest import GROUPS, Backend, get, row

CAP = 1_500
NAMES = [f"row {number}" for number in range(12)]
LAWS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def of(name: str) -> Row:
    """The row of a name: names differ in size and in group."""
    number = NAMES.index(name)
    return row(name, bytes([number]) * 40 * number, GROUPS[number % 3])


class Model:
    """The rows there should be."""

    def __init__(self, *, reads_renew: bool) -> None:
        self.rows: OrderedDict[str, Row] = OrderedDict()
        self._reads_renew = reads_renew

    def put(self, names: list[str]) -> None:
        for name in names:
            self.rows[name] = of(name)
            self.rows.move_to_end(name)
            while sum(each.cost for each in self.rows.values()) > CAP:
                self.rows.popitem(last=False)

    def get(self, name: str) -> bytes | None:
        if name in self.rows and self._reads_renew:
            self.rows.move_to_end(name)
        return self.rows[name].value if name in self.rows else None

    def delete(self, group: bytes) -> int:
        names = [name for name, each in self.rows.items() if each.group == group]
        for name in names:
            del self.rows[name]
        return len(names)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(st.sampled_from(NAMES), max_size=4, unique=True)),
        st.tuples(st.just("get"), st.lists(st.sampled_from(NAMES), max_size=4)),
        st.tuples(st.just("delete"), st.sampled_from(GROUPS)),
        st.tuples(st.just("refresh"), st.none()),
        st.tuples(st.just("reopen"), st.none()),
    ),
    max_size=20,
)


@given(steps=STEPS)
@LAWS
def test_rows_are_those_of_a_list_that_drops_its_end(backend: Backend, steps: list[tuple[str, object]]) -> None:
    rows, model = backend.new(CAP), Model(reads_renew=backend.reads_renew)
    for step, what in steps:
        if step == "put":
            assert isinstance(what, list)
            rows.put_many([of(name) for name in what])
            model.put(what)
        elif step == "get":
            assert isinstance(what, list)
            assert get(rows, *what) == [model.get(name) for name in what]
        elif step == "delete":
            assert isinstance(what, bytes)
            assert rows.delete_group(what) == model.delete(what)
        elif step == "refresh":
            rows.refresh()
            assert rows.nbytes == sum(each.cost for each in model.rows.values())
        else:
            rows.close()
            rows = backend.again(CAP)
        rows.check_integrity()
    assert get(rows, *NAMES) == [model.get(name) for name in NAMES]
    rows.close()


def test_a_row_that_is_put_again_has_its_new_value_group_and_place(backend: Backend) -> None:
    rows = backend.new(2 * ROW_BYTES + 100)
    rows.put_many([row("a", b"old"), row("b")])
    rows.put_many([row("a", b"new", GROUPS[1])])
    assert get(rows, "b", "a") == [b"b", b"new"]
    rows.put_many([row("c")])
    assert get(rows, "a", "b", "c") == [b"new", None, b"c"]
    assert rows.delete_group(GROUPS[0]) == 1
    assert get(rows, "a", "c") == [b"new", None]
    rows.check_integrity()


def test_a_row_over_the_cap_is_not_kept_and_costs_no_other_its_place(backend: Backend) -> None:
    rows = backend.new(1_000)
    rows.put_many([row("a"), row("large", bytes(1_000)), row("b")])
    assert get(rows, "a", "large", "b") == [b"a", None, b"b"]
    rows.check_integrity()


def test_what_is_older_than_the_retention_is_not_there_and_is_dropped(backend: Backend) -> None:
    rows = backend.new()
    rows.put_many([row("a"), row("b")])
    before = rows.nbytes
    backend.grow_old()
    assert get(rows, "a", "b") == [None, None]
    assert rows.nbytes == before
    rows.refresh()
    assert rows.nbytes == 0
    rows.put_many([row("b")])
    assert get(rows, "a", "b") == [None, b"b"]
    rows.check_integrity()


@pytest.mark.parametrize("backend", ["sqlite", "redis"], indirect=True)  # in memory each kind is an object of its own
def test_kinds_have_their_own_rows_and_their_own_cap_and_a_tenant_goes_from_all(backend: Backend) -> None:
    records, *others = backend.new(CAP), backend.again(CAP, "embeddings"), backend.again(CAP, "index")
    records.put_many([row("a", b"text"), row("b", b"other", GROUPS[1])])
    for size, rows in enumerate(others, 1_200):
        rows.put_many([row("a", bytes(size))])
    assert get(records, "a") == [b"text"]
    assert [get(rows, "a", "b") for rows in others] == [[bytes(1_200), None], [bytes(1_201), None]]
    assert records.delete_group(GROUPS[0]) == 1
    assert get(records, "a", "b") == [None, b"other"]
    assert [get(rows, "a") for rows in others] == [[None], [None]]
    assert [rows.delete_group(GROUPS[1]) for rows in others] == [0, 0]
    for rows in (records, *others):
        rows.refresh()
        rows.check_integrity()
        assert rows.nbytes == 0


def test_rows_are_deleted_by_their_keys_those_of_their_kind_alone(backend: Backend) -> None:
    rows = backend.new()
    rows.put_many([row(name) for name in "abc"])
    rows.delete_many([row(name).key for name in ("a", "c", "nobody")])
    rows.delete_many([])
    assert get(rows, "a", "b", "c") == [None, b"b", None]
    rows.put_many([row("a", b"again")])
    assert get(rows, "a") == [b"again"]
    rows.refresh()
    assert rows.nbytes == 2 * ROW_BYTES + len(b"b" + b"again")
    rows.check_integrity()
    assert rows.delete_group(GROUPS[0]) == 2


@pytest.mark.parametrize("backend", ["sqlite", "redis"], indirect=True)
def test_a_key_that_is_deleted_stays_in_every_other_kind(backend: Backend) -> None:
    records, index = backend.new(), backend.again(kind="index")
    for rows in (records, index):
        rows.put_many([row("a")])
    index.delete_many([row("a").key])
    assert (get(records, "a"), get(index, "a")) == ([b"a"], [None])
    records.check_integrity()
    index.check_integrity()


def test_a_group_that_nobody_has_is_no_error_and_deletes_nothing(backend: Backend) -> None:
    rows = backend.new()
    rows.put_many([row("a")])
    assert rows.delete_group(GROUPS[2]) == 0
    assert get(rows, "a") == [b"a"]


def test_any_bytes_come_back(backend: Backend) -> None:
    rows = backend.new(10_000_000)
    values = [b"", b"\0", bytes(range(256)), b"\xff" * 3_000_000, b"%s \r\n$5"]
    rows.put_many([row(f"value {place}", value) for place, value in enumerate(values)])
    assert get(rows, *[f"value {place}" for place in range(5)]) == values
    assert rows.get_many([]) == []


def test_threads_share_one_store(backend: Backend) -> None:
    rows = backend.new(20 * (ROW_BYTES + 1))

    def use(number: int) -> None:
        for turn in range(20):
            rows.put_many([row(f"{number} {turn}", b"x", GROUPS[number % 3])])
            assert get(rows, f"{number} {turn}", "nobody") in ([b"x", None], [None, None])

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(use, range(6)))
    rows.refresh()
    rows.check_integrity()
    assert rows.nbytes == 20 * (ROW_BYTES + 1)
