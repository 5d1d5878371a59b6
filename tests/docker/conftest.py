"""Prometheus' own tool, from Debian's packages where it is not there."""

from __future__ import annotations

import subprocess

import pytest

from tests.docker.monitoring import ROOT


@pytest.fixture(scope="session", autouse=True)
def promtool() -> None:
    """Have `promtool` on the PATH."""
    subprocess.run([ROOT / "scripts/install_debian.sh", "promtool"], check=True)
