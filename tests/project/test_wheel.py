"""The wheel holds all it needs: it works in an environment that has never seen the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KERNELS = ("codec_decode", "codec_encode", "l2_verify", "quantize_bands")
FIND = """
from lam_vllm.resources import resource
for kind in ("configs", "kernels"):
    folder = resource(kind)
    print(folder, *sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*")))
from lam_vllm.encoders.profile import read_profile
from lam_vllm.search.basis import read_basis
print(*read_basis(read_profile("minilm").basis, 384).shape)
"""


def run(*command: str | Path, cwd: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment, outside the checkout, with the built wheel; dependencies come from this environment."""
    home = tmp_path_factory.mktemp("wheel")
    build = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", home, ROOT)
    run(*build, cwd=home)
    (wheel,) = home.glob("lam_vllm-*.whl")
    venv.create(home / "env", with_pip=False)
    site = home / "env" / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    run(sys.executable, "-m", "pip", "--python", home / "env", "install", "--no-deps", "--no-index", wheel, cwd=home)
    # A path file adds the packages of this environment, but not the path files in them, which lead to the checkout.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "env"


def test_the_wheel_finds_its_configs_and_kernels(installed: Path) -> None:
    configs, kernels, basis = run(installed / "bin" / "python", "-c", FIND, cwd=installed).splitlines()
    assert configs.startswith(str(installed)) and "encoders/minilm.yaml" in configs.split()
    sources = {*(f"{name}.cu" for name in KERNELS), "include/lam/base.h", "include/lam/scan.h"}
    assert kernels.startswith(str(installed)) and sources <= set(kernels.split())
    assert basis == "64 384"


def test_the_wheel_brings_the_command(installed: Path) -> None:
    help_text = run(installed / "bin" / "lam-vllm", "--help", cwd=installed)
    commands = ("analyze", "calibrate", "compact", "doctor", "eval", "inspect", "model", "replay", "search", "serve")
    assert all(command in help_text for command in commands)


def test_the_wheel_holds_the_page_and_the_papers_figures(installed: Path) -> None:
    evaluation = next(installed.glob("lib/*/site-packages/lam_vllm/evaluation"))
    assert (evaluation / "study" / "paper_tables.json").is_file()
    assert {path.suffix for path in (evaluation / "inspection" / "assets").iterdir()} == {".css", ".js"}


def test_the_wheel_offers_the_plugin_to_vllm_and_its_types_to_others(installed: Path) -> None:
    package = next(installed.glob("lib/*/site-packages/lam_vllm"))
    entry_points = next(package.parent.glob("lam_vllm-*.dist-info")) / "entry_points.txt"
    assert "[vllm.endpoint_plugins]\nlam = lam_vllm.serving.plugin:LamPlugin\n" in entry_points.read_text()
    assert (package / "py.typed").is_file()
