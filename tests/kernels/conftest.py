"""What the tests of the kernels are built once for."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import numpy as np
import pytest

from lam_vllm.codec.bounded import Values
from tests.kernels.builds import KERNELS, build
from tests.kernels.host import HostBuild
from tests.kernels.on_host import OnHost

SHARED = ("-O2", "-fPIC", "-shared")


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> HostBuild:
    """The headers, compiled by g++."""
    target = tmp_path_factory.mktemp("host") / "lam_host.so"
    return HostBuild(build(KERNELS / "host/lam_host.cpp", target, *SHARED))


@pytest.fixture(scope="session")
def on_host_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernels, compiled by g++ for a CPU that acts as a device; or a library that was compiled otherwise."""
    if "LAM_SANITIZED" in os.environ:
        return Path(os.environ["LAM_SANITIZED"])
    target = tmp_path_factory.mktemp("on_host") / "on_host.so"
    return build(KERNELS / "host/on_host.cpp", target, *SHARED, "-pthread", "-Wno-unknown-pragmas")


@pytest.fixture
def device(on_host_library: Path) -> OnHost:
    """A device that runs the kernels on the CPU."""
    return OnHost(on_host_library)


@pytest.fixture(scope="session")
def real_rows() -> Values:
    """(10, 384) embeddings of recorded tool output."""
    kept = json.loads((KERNELS.parent / "tests/data/codec/streams.json").read_text(encoding="ascii"))
    (real,) = (entry for entry in kept if entry["name"] == "real windows")
    return np.frombuffer(base64.b64decode(real["rows"]), "<f4").reshape(real["shape"])
