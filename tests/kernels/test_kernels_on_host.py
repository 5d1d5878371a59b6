"""The kernels themselves, launched as on a device but run on the CPU: grids, tiles, look-back, lanes, edges.

What this cannot show: that a GPU runs them, how fast, and what its memory model allows.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lam_vllm.codec.bounded import Values, inverse_of, step_of, tolerance_of
from lam_vllm.codec.fixed import Blocks, decode_blocks, encode_blocks
from lam_vllm.ops import launches
from lam_vllm.ops.launches import Bound, FixedBlocks
from lam_vllm.ops.reference import band_digests, band_quanta, l2_distances
from tests.codec.matrices import HOSTILE, SIGNALLING, bits, embeddings
from tests.kernels.builds import KERNELS, SANITIZED, build, compiler
from tests.kernels.on_host import OnHost

EPS = 0.002631
SHAPES = [(1, 1), (3, 5), (2, 32), (40, 384), (33, 100), (70, 33), (9, 130), (128, 32), (129, 32), (40, 2048)]


def bound(eps: float) -> Bound:
    return Bound(step_of(eps), inverse_of(eps), tolerance_of(eps))


def with_hostile_values(count: int, dimension: int) -> Values:
    """Rows like embeddings, in which some blocks escape and some are zero."""
    rows = embeddings(count, dimension, seed=count)
    random = np.random.default_rng(dimension)
    strange = np.concatenate([HOSTILE, SIGNALLING])
    places = random.integers(0, rows.size, rows.size // 100 + 1)
    rows.reshape(-1)[places] = random.choice(strange, len(places))
    rows[count // 3] = 0
    return rows


def views(count: int, dimension: int) -> Iterator[Values]:
    """The same matrix at a multiple of 16 bytes and beside one."""
    rows = with_hostile_values(count, dimension)
    room = np.zeros(rows.size + 8, np.float32)
    first = -(room.ctypes.data // 4) % 4
    for place in (first, first + 1):
        moved = room[place : place + rows.size].reshape(rows.shape)
        moved[...] = rows
        yield moved


def assert_encoded(device: OnHost, rows: Values, eps: float) -> FixedBlocks:
    found, expected = launches.encode_fixed(device, rows, bound(eps)), encode_blocks(rows, eps)
    assert (found.widths == expected.widths).all()
    assert found.words.tobytes() == expected.words.tobytes()
    return found


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_encoded_and_decoded_as_by_numpy(device: OnHost, shape: tuple[int, int]) -> None:
    for rows in views(*shape):
        found = assert_encoded(device, rows, EPS)
        decoded = launches.decode_fixed(device, found.widths, found.words, shape[1], step_of(EPS))
        assert (bits(decoded) == bits(decode_blocks(Blocks(found.widths, found.words), shape[1], EPS))).all()


@pytest.mark.parametrize("eps", [1e-30, 1e-9, 2.6e-5, 1.0, 1e30])
def test_bounds_of_every_size(device: OnHost, eps: float) -> None:
    assert_encoded(device, with_hostile_values(20, 100), eps)


@pytest.mark.parametrize("seed", range(4))
def test_the_order_in_which_blocks_run_changes_nothing(on_host_library: Path, seed: int) -> None:
    device = OnHost(on_host_library, seed)
    found = assert_encoded(device, with_hostile_values(45 * 32 + 7, 128), EPS)  # look-back over more than one warp
    decoded = launches.decode_fixed(device, found.widths, found.words, 128, step_of(EPS))
    assert (bits(decoded) == bits(decode_blocks(Blocks(found.widths, found.words), 128, EPS))).all()


@pytest.mark.parametrize(("width", "shape"), [(4, (7, 384)), (4, (9, 33)), (8, (300, 20)), (16, (3, 40)), (5, (2, 12))])
def test_bands_are_those_of_numpy(device: OnHost, width: int, shape: tuple[int, int]) -> None:
    for unit in (embeddings(*shape), np.ones((shape[0] * shape[1] + 1,), np.float32)[1:].reshape(shape)):
        found = launches.quantize_bands(device, unit, 0.01, width, with_quanta=True)
        assert (found.digests == band_digests(unit, 0.01, width)).all()
        assert found.quanta is not None and (found.quanta == band_quanta(unit, 0.01)).all()
        assert launches.quantize_bands(device, unit, 0.01, width, with_quanta=False).quanta is None


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_a_value_without_a_quantum_is_refused(device: OnHost, value: float) -> None:
    rows = embeddings(5, 384)
    rows[4, 383] = value
    with pytest.raises(ValueError, match=r"rows: a value is not allowed; allowed: finite values below 2\^31 quanta"):
        launches.quantize_bands(device, rows, 0.01, 4, with_quanta=False)


@pytest.mark.parametrize("shape", [(1, 1), (31, 5), (33, 32), (65, 384), (40, 100), (10, 770), (4, 0)], ids=str)
def test_distances_have_the_bits_of_numpy(device: OnHost, shape: tuple[int, int]) -> None:
    rows = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    rows[::3] *= np.float32(1e-40)  # subnormal numbers count
    query = np.random.default_rng(2).standard_normal(shape[1]).astype(np.float32)
    for moved in (rows, np.concatenate([[0], rows.reshape(-1)]).astype(np.float32)[1:].reshape(shape)):
        assert launches.l2_distances(device, moved, query).tobytes() == l2_distances(rows, query).tobytes()


def test_strange_widths_and_lengths_are_refused_and_nothing_outside_is_read(device: OnHost) -> None:
    found = launches.encode_fixed(device, embeddings(30, 384), bound(EPS))
    for strange in (25, 254):
        widths = found.widths.copy()
        widths[17, 3] = strange
        with pytest.raises(ValueError, match="widths: a width is not allowed"):
            launches.decode_fixed(device, widths, found.words, 384, step_of(EPS))
    for other in (found.words[:-1].copy(), np.append(found.words, np.uint32(0)), found.words[:0].copy()):
        with pytest.raises(ValueError, match=f"words: {len(other)} is not allowed"):
            launches.decode_fixed(device, found.widths, other, 384, step_of(EPS))


def test_under_sanitizers_the_same_tests_find_no_access_out_of_bounds(tmp_path: Path) -> None:
    """The tests above once more, in a process of its own whose kernels are built with both sanitizers."""
    if "LAM_SANITIZED" in os.environ:
        pytest.skip("this is that process")
    flags = (*SANITIZED, "-fPIC", "-shared", "-pthread", "-Wno-unknown-pragmas")
    library = build(KERNELS / "host/on_host.cpp", tmp_path / "sanitized.so", *flags)
    found = [sanitizer_library(name) for name in ("libasan.so", "libubsan.so")]
    clean = {**os.environ, "LAM_SANITIZED": str(library), "LD_PRELOAD": " ".join(found)}
    clean["ASAN_OPTIONS"] = "detect_leaks=0"
    chosen = "encoded_and_decoded or bands_are or distances_have or strange_widths"
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, __file__)
    done = subprocess.run(
        command, env=clean, cwd=KERNELS.parent, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


def sanitizer_library(name: str) -> str:
    command = (compiler("g++"), f"-print-file-name={name}")
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
