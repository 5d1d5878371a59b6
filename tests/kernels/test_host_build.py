"""The headers that the kernels are made of, compiled for the CPU: the same bytes and bits as numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lam_vllm.codec import CodecError
from lam_vllm.codec.bounded import Values, step_of
from lam_vllm.codec.fixed import ESCAPED, encode_blocks, fixed_body, fixed_rows
from lam_vllm.ops.reference import band_digests, band_quanta, l2_distances, quanta_step
from tests.codec.matrices import HOSTILE, SIGNALLING, any_bits, bits, bounds, embeddings, matrices
from tests.kernels.host import FAULTS, HostBuild


def from_numpy(body: bytes, like: Values, eps: float) -> Values:
    return fixed_rows(memoryview(body), like.shape[0], like.shape[1], eps)


anywhere = settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])


@anywhere
@given(matrix=matrices, eps=bounds)
@example(matrix=np.tile(HOSTILE, (3, 5)), eps=0.01)
@example(matrix=np.tile(SIGNALLING, (3, 5)), eps=0.01)
@example(matrix=np.zeros((4, 33), np.float32), eps=0.01)
def test_encoding_gives_the_bytes_of_numpy(host: HostBuild, matrix: Values, eps: float) -> None:
    body = host.encode(matrix, eps)
    assert body == fixed_body(matrix, eps)
    decoded = host.decode(body, matrix.shape, eps)
    assert not isinstance(decoded, str)
    assert (bits(decoded) == bits(from_numpy(body, matrix, eps))).all()


def test_values_at_the_edges_between_quanta_and_of_every_width_agree(host: HostBuild) -> None:
    """Halves of a step, at every power of two up to the largest quantum, with the fp32 numbers beside them."""
    eps = 0.002631
    halves = np.outer(np.arange(0.5, 33, 0.5), 2.0 ** np.arange(18)).reshape(-1)
    middle = (np.append(halves, [4194303, 4194303.5, 4194304]) * float(step_of(eps))).astype(np.float32)
    middle = np.concatenate([middle, -middle])
    sides = [np.nextafter(middle, np.float32(side)) for side in (-np.inf, np.inf)]
    matrix = np.concatenate([middle, *sides])[:, None]
    assert host.encode(matrix, eps) == fixed_body(matrix, eps)
    assert set(encode_blocks(matrix, eps).widths.ravel().tolist()) >= {*range(1, 24), ESCAPED}


@pytest.mark.parametrize("eps", [0.002631, 2.6e-5, 1e-9])
def test_real_rows_agree(host: HostBuild, real_rows: Values, eps: float) -> None:
    assert host.encode(real_rows, eps) == fixed_body(real_rows, eps)


@anywhere
@given(matrix=any_bits(), eps=bounds, data=st.data())
def test_damaged_bodies_are_read_or_refused_as_by_numpy(
    host: HostBuild, matrix: Values, eps: float, data: st.DataObject
) -> None:
    body = bytearray(fixed_body(matrix, eps))
    for _ in range(data.draw(st.integers(0, 3)) if body else 0):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(body[: data.draw(st.integers(0, len(body)))] if data.draw(st.booleans()) else body)
    decoded = host.decode(damaged, matrix.shape, eps)
    try:
        expected = from_numpy(damaged, matrix, eps)
    except CodecError:
        assert isinstance(decoded, str)
    else:
        assert not isinstance(decoded, str)
        assert (bits(decoded) == bits(expected)).all()


@pytest.mark.parametrize(
    ("change", "fault"),
    [(lambda body: body[:3], 1), (lambda body: b"\x19" + body[1:], 2), (lambda body: body + b"\0\0\0\0", 3)],
)
def test_each_fault_has_its_name(host: HostBuild, change: object, fault: int) -> None:
    body = fixed_body(embeddings(4, 32), 0.01)
    assert host.decode(change(body), (4, 32), 0.01) == FAULTS[fault]  # type: ignore[operator]


@anywhere
@given(matrix=matrices, eps=bounds, width=st.integers(1, 80))
def test_digests_and_quanta_are_those_of_numpy(host: HostBuild, matrix: Values, eps: float, width: int) -> None:
    found = host.bands(matrix, quanta_step(eps), width)
    try:
        expected = band_digests(matrix, eps, width)
    except ValueError:
        assert found is None
    else:
        assert found is not None
        assert (found[0] == expected).all()
        assert (found[1] == band_quanta(matrix, eps)).all()


@anywhere
@given(matrix=matrices, seed=st.integers(0, 100))
def test_distances_have_the_bits_of_numpy(host: HostBuild, matrix: Values, seed: int) -> None:
    query = np.random.default_rng(seed).standard_normal((matrix.shape[1],)).astype(np.float32)
    with np.errstate(invalid="ignore"):
        expected = l2_distances(matrix, query)
    found = host.l2_distances(matrix, query)
    assert (np.isnan(found) == np.isnan(expected)).all()
    assert (found.view(np.uint64) == expected.view(np.uint64))[~np.isnan(expected)].all()


def test_distances_between_real_rows_have_the_bits_of_numpy(host: HostBuild, real_rows: Values) -> None:
    for place in range(len(real_rows)):
        query = real_rows[place].copy()
        assert host.l2_distances(real_rows, query).tobytes() == l2_distances(real_rows, query).tobytes()
