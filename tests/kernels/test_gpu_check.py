"""bench/gpu_check.py: its comparisons, over the kernels run on the CPU, and what it says where there is no GPU."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from lam_vllm.ops import launches
from tests.kernels.builds import KERNELS
from tests.kernels.on_host import OnHost

BENCH = KERNELS.parent / "bench"
sys.path.append(str(BENCH))  # the benchmarks import one another by name, as scripts in one folder do

from gpu_check import parity  # noqa: E402


def test_the_kernels_pass_the_comparisons_on_the_cpu(device: OnHost) -> None:
    found = parity(device, np.asarray, np.asarray, large=45)
    assert len(found) > 50
    assert [name for name, holds in found.items() if not holds] == []


def test_a_single_wrong_bit_is_found(device: OnHost, monkeypatch: pytest.MonkeyPatch) -> None:
    right = launches.encode_fixed

    def wrong(*arguments: Any) -> launches.FixedBlocks:
        blocks = right(*arguments)
        if blocks.words.size:
            blocks.words[-1] ^= 1
        return blocks

    monkeypatch.setattr(launches, "encode_fixed", wrong)
    found = parity(device, np.asarray, np.asarray, large=2)
    assert not found["codec, real windows, eps 0.002631"]


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed here")
def test_without_a_gpu_it_says_so_and_ends_with_code_2() -> None:
    done = subprocess.run([sys.executable, str(BENCH / "gpu_check.py")], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "needs the extra 'cuda'" in done.stdout
