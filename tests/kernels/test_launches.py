"""What launchers refuse before anything runs, what they launch, and where the kernels are found."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import numpy as np
import pytest

from lam_vllm.errors import MissingExtraError
from lam_vllm.ops import cuda, launches
from lam_vllm.ops.launches import MOST_BLOCKS, MOST_DIMENSION, Bound
from lam_vllm.ops.sources import KERNELS, compiler_options, source_file
from lam_vllm.resources import resource
from tests.kernels.on_host import OnHost

BOUND = Bound(np.float32(0.02), np.float32(50), np.float32(0.01))
ROWS = np.zeros((2, 64), np.float32)
WIDTHS, WORDS = np.zeros((2, 2), np.uint8), np.zeros(0, np.uint32)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[0.0]], "rows: list from elsewhere is not allowed; allowed: 2 axes of float32, contiguous, on the current"),
        (ROWS[0], r"rows: shape \(64,\) of float32 is not allowed"),
        (ROWS.astype(np.float16), r"rows: shape \(2, 64\) of float16 is not allowed"),
        (ROWS[:, ::2], r"rows: strides \(256, 8\) are not allowed"),
        (np.asfortranarray(ROWS), "rows: strides .* are not allowed"),
    ],
)
def test_matrices_that_no_kernel_takes_are_refused_by_name(device: OnHost, rows: object, message: str) -> None:
    for call in (
        lambda: launches.l2_distances(device, rows, ROWS[0]),
        lambda: launches.quantize_bands(device, rows, 0.1, 4, with_quanta=False),
        lambda: launches.encode_fixed(device, rows, BOUND),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert not device.launched


def test_other_arguments_are_refused_by_name(device: OnHost) -> None:
    with pytest.raises(ValueError, match="query: dimension 63 is not allowed; allowed: 64, that of rows"):
        launches.l2_distances(device, ROWS, ROWS[0, :63])
    with pytest.raises(ValueError, match="width: 0 is not allowed; allowed: 1 to 16777216"):
        launches.quantize_bands(device, ROWS, 0.1, 0, with_quanta=False)
    with pytest.raises(ValueError, match="eps: 0 is not allowed"):
        launches.quantize_bands(device, ROWS, 0, 4, with_quanta=False)
    with pytest.raises(ValueError, match="widths: 2 a row is not allowed; allowed: 3, as D says"):
        launches.decode_fixed(device, WIDTHS, WORDS, 65, BOUND.step)
    with pytest.raises(ValueError, match="widths: an odd address is not allowed; allowed: a multiple of 4 bytes"):
        launches.decode_fixed(device, np.zeros(5, np.uint8)[1:].reshape(2, 2), WORDS, 64, BOUND.step)
    with pytest.raises(ValueError, match="words: length 129 is not allowed; allowed: at most 128"):
        launches.decode_fixed(device, WIDTHS, np.zeros(129, np.uint32), 64, BOUND.step)
    assert not device.launched


def test_sizes_that_no_kernel_can_count_are_refused(device: OnHost) -> None:
    """Of memory that is reserved and never touched."""
    wide, long = np.zeros((0, MOST_DIMENSION + 1), np.float32), np.zeros((MOST_BLOCKS + 1, 1), np.float32)
    for call in (
        lambda: launches.l2_distances(device, wide, wide[:0].reshape(-1)),
        lambda: launches.quantize_bands(device, wide, 0.1, 4, with_quanta=False),
    ):
        with pytest.raises(ValueError, match="rows: dimension 16777217 is not allowed; allowed: at most 16777216"):
            call()
    with pytest.raises(ValueError, match="rows: blocks 33554432 is not allowed; allowed: at most 33554431"):
        launches.encode_fixed(device, long, BOUND)
    with pytest.raises(ValueError, match="widths: blocks 33554432 is not allowed"):
        launches.decode_fixed(device, np.zeros(long.shape, np.uint8), WORDS, 1, BOUND.step)
    assert not device.launched


@pytest.mark.parametrize("shape", [(0, 64), (0, 5)])
def test_nothing_is_launched_for_no_rows(device: OnHost, shape: tuple[int, int]) -> None:
    rows = np.zeros(shape, np.float32)
    assert launches.l2_distances(device, rows, np.zeros(shape[1], np.float32)).shape == (0,)
    assert launches.quantize_bands(device, rows, 0.1, 4, with_quanta=True).digests.shape == (0, -(-shape[1] // 4))
    encoded = launches.encode_fixed(device, rows, BOUND)
    assert encoded.words.size == 0
    assert launches.decode_fixed(device, encoded.widths, encoded.words, shape[1], BOUND.step).shape == shape
    assert not device.launched


def test_every_kernel_has_its_file_and_its_function() -> None:
    assert sorted(path.stem for path in resource("kernels").glob("*.cu")) == sorted(KERNELS)
    for kernel in KERNELS:
        assert f"lam_{kernel}(" in source_file(kernel).read_text(encoding="ascii")


def test_the_options_name_the_headers_and_forbid_what_changes_bits() -> None:
    options = compiler_options()
    assert {"--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"} <= set(options)
    (include,) = (option[2:] for option in options if option.startswith("-I"))
    assert include == str(resource("kernels") / "include")


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed here")
def test_without_cupy_the_error_names_the_extra() -> None:
    for call in (cuda.load, lambda: cuda.l2_distances(ROWS, ROWS[0])):
        with pytest.raises(MissingExtraError, match=r"a CUDA device needs the extra 'cuda'.*or use the device cpu"):
            call()


def test_importing_the_launchers_loads_no_cupy() -> None:
    code = "import sys, lam_vllm.ops.cuda; print('cupy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
