"""Arrays on a device: handed over without a copy, found again by the host's copy, forgotten with it.

The device is numpy with the reference operations: all that differs on a GPU is the module that is given.
"""

from __future__ import annotations

import gc
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as matrices

from lam_vllm.ops import reference
from lam_vllm.ops.arrays import HOST, Arrays
from lam_vllm.ops.on_device import DeviceArrays, Twins


class Noting(ModuleType):
    """The reference operations, which keep what they were given."""

    def __init__(self) -> None:
        super().__init__("noting")
        self.given: list[Any] = []

    def l2_distances(self, rows: Any, query: Any) -> Any:
        self.given += [rows, query]
        return reference.l2_distances(rows, query)

    def band_digests(self, rows: Any, eps: float, width: int) -> Any:
        self.given.append(rows)
        return reference.band_digests(rows, eps, width)


def made(rows: int = 4, dimension: int = 40) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).standard_normal((rows, dimension)).astype(np.float32))


@pytest.fixture
def noting() -> Noting:
    return Noting()


@pytest.fixture
def arrays(noting: Noting) -> DeviceArrays:
    return DeviceArrays(np, noting, np.array)


def test_a_tensor_is_handed_over_without_a_copy_and_the_host_gets_its_own(arrays: DeviceArrays) -> None:
    tensor = made()
    rows = arrays.received(tensor)
    assert np.shares_memory(arrays.there(rows), tensor.numpy())
    assert not np.shares_memory(rows, tensor.numpy())
    assert rows.tobytes() == tensor.numpy().tobytes()


def test_what_was_received_is_not_sent_back(arrays: DeviceArrays, noting: Noting) -> None:
    tensor = made()
    rows = arrays.received(tensor)
    query = arrays.alone(rows, 1)
    assert arrays.l2_distances(rows, query).tobytes() == reference.l2_distances(rows, query).tobytes()
    assert np.shares_memory(noting.given[0], tensor.numpy())
    assert np.shares_memory(noting.given[1], arrays.there(query))
    assert arrays.band_digests(query[None], 0.01, 4).tobytes() == reference.band_digests(query[None], 0.01, 4).tobytes()
    assert np.shares_memory(noting.given[2], arrays.there(query))


def test_a_row_alone_keeps_nothing_of_its_batch(arrays: DeviceArrays) -> None:
    rows = arrays.received(made())
    row = arrays.alone(rows, 2)
    there = arrays.there(row)
    assert row.base is None and not np.shares_memory(there, arrays.there(rows))
    assert row.tobytes() == there.tobytes() == rows[2].tobytes()
    unknown = arrays.alone(np.ones((2, 3), np.float32), 0)
    assert unknown.tolist() == [1.0, 1.0, 1.0]


def test_a_view_of_the_same_elements_is_found_and_another_one_is_not(arrays: DeviceArrays) -> None:
    rows = arrays.received(made())
    row = arrays.alone(rows, 0)
    there = arrays.there(row)
    assert np.shares_memory(arrays.there(row[None]), there) and arrays.there(row[None]).shape == (1, len(row))
    for other in (row[::-1], row[1:], rows[1:], row.copy(), rows[:, ::-1]):
        found = arrays.there(other)
        assert not np.shares_memory(found, there) and found.tobytes() == np.ascontiguousarray(other).tobytes()


def test_what_is_on_the_device_goes_with_the_hosts_copy_and_there_is_a_cap() -> None:
    twins = Twins(most=3)
    hosts = [np.full(4, number, np.float32) for number in range(5)]
    for host in hosts:
        twins.keep(host, host.copy())
    assert len(twins) == 3
    assert [twins.find(host) is not None for host in hosts] == [True, True, True, False, False]
    hosts.clear()
    del host
    gc.collect()
    assert len(twins) == 0


@given(
    matrices(np.float32, st.tuples(st.integers(0, 5), st.integers(1, 70)), elements=st.floats(-1, 1, width=32)),
    st.data(),
)
def test_every_operation_gives_the_bits_of_the_host(matrix: Any, data: st.DataObject) -> None:
    device: Arrays = DeviceArrays(np, Noting(), np.array)
    query = data.draw(matrices(np.float32, matrix.shape[1], elements=st.floats(-1, 1, width=32)))
    width = data.draw(st.integers(1, 9))
    assert device.l2_distances(matrix, query).tobytes() == HOST.l2_distances(matrix, query).tobytes()
    assert device.band_digests(matrix, 0.01, width).tobytes() == HOST.band_digests(matrix, 0.01, width).tobytes()
    for place in range(len(matrix)):
        assert device.alone(matrix, place).tobytes() == HOST.alone(matrix, place).tobytes()


@pytest.mark.parametrize("arrays_", [HOST, DeviceArrays(np, Noting(), np.array)], ids=["host", "device"])
def test_errors_are_those_of_the_reference(arrays_: Arrays) -> None:
    with pytest.raises(ValueError, match="query: dimension 3 is not allowed; allowed: 4"):
        arrays_.l2_distances(np.zeros((1, 4), np.float32), np.zeros(3, np.float32))
