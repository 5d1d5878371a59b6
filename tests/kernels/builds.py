"""Builds of the kernels' headers, and of the kernels themselves, for the CPU."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from lam_vllm.resources import resource

KERNELS = resource("kernels")
HEADERS = (f"-I{KERNELS / 'include'}", f"-I{KERNELS / 'host'}", f"-I{KERNELS}")
STRICT = ("-std=c++17", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror")
SANITIZED = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def compiler(name: str) -> str:
    """The path of a compiler; the test is skipped where there is none."""
    return shutil.which(name) or pytest.skip(f"no {name} here")


def build(source: Path, target: Path, *flags: str) -> Path:
    """`target`, made of one file by g++ without a warning."""
    command = (compiler("g++"), *STRICT, *HEADERS, *flags, str(source), "-o", str(target))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return target
