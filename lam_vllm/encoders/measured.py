"""The fast pass of an encoder on this machine: measured once, and kept under the encoder's fingerprint."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from lam_vllm.encoders.base import BatchEncoder, Pass
from lam_vllm.encoders.two_pass import (
    MARGIN_COS,
    MARGIN_L2,
    MEASUREMENT_VERSION,
    SAFETY_FACTOR,
    FastPass,
    choose_pass,
    sample_windows,
    widened,
)

_CPU_VARIABLES = ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS")
_CPU_FACTS = ("model name", "flags", "Features")


def measured_pass(encoder: BatchEncoder, least_band: float = 0.0) -> FastPass:
    """What `choose_pass` found for this encoder on this kind of CPU, now or at an earlier start.

    `least_band` is one that was measured elsewhere, on more texts: see `widened`.
    """
    kept = _read(_path(encoder))
    if kept is None or kept.way not in encoder.passes():
        kept = choose_pass(encoder, sample_windows(encoder))
        with suppress(OSError):  # a folder that cannot be written to costs the measurement again at the next start
            keep_pass(encoder, kept)
    return widened(kept, least_band)


def keep_pass(encoder: BatchEncoder, measured: FastPass) -> None:
    """Have `measured_pass` return this for the encoder on this kind of CPU from now on.

    Raises:
        OSError: the folder cannot be written to.
    """
    path = _path(encoder)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        json.dump(asdict(measured), file)
    Path(file.name).replace(path)


def kept_measurements() -> Path:
    """The folder: $XDG_CACHE_HOME or ~/.cache, then lam-vllm/encoders."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "lam-vllm" / "encoders"


def _path(encoder: BatchEncoder) -> Path:
    return kept_measurements() / f"{_key(encoder)}.json"


def _key(encoder: BatchEncoder) -> str:
    """Names the encoder, the CPU, and the rule by which a band is made."""
    facts = [
        encoder.fingerprint,
        SAFETY_FACTOR,
        MEASUREMENT_VERSION,
        _cpu(),
        [os.environ.get(name) for name in _CPU_VARIABLES],
    ]
    return hashlib.blake2b(json.dumps(facts).encode(), digest_size=16).hexdigest()


def _cpu() -> list[str]:
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return sorted({line for line in lines if line.startswith(_CPU_FACTS)})
    return []


def _read(path: Path) -> FastPass | None:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        kept = FastPass(**{**values, "way": Pass(**values["way"])})
        return kept if _can_be(kept) else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _can_be(kept: FastPass) -> bool:
    """Whether a measurement can have come to this."""
    if kept.way.canonical:
        return kept.guard_band == kept.embedding_error == 0.0
    return kept.guard_band >= MARGIN_COS and kept.embedding_error >= MARGIN_L2
