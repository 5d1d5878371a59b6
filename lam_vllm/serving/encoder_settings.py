"""How the server's encoder runs: settings of the process, never of a request."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lam_vllm.encoders.device import WANTED, Wanted
from lam_vllm.errors import OptionError
from lam_vllm.serving.numbers import number_setting

NAMES = ("encoder", "device", "threads", "cpus", "audit_rate")
AUDIT_RATE = 0.001
CPUS_A_THREAD = 4
"""Unless said otherwise one core in so many encodes: the rest is the server's."""


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """`name` is None where there is no encoder. `threads` encode, on `cpus` (None: any); the model is on `device`.

    `audit_rate` is the share of requests that are decided again, off their path, by canonical embeddings alone.
    """

    name: str | None = None
    threads: int = 1
    cpus: frozenset[int] | None = None
    audit_rate: float = AUDIT_RATE
    device: Wanted = "auto"


def encoder_settings(
    environment: Mapping[str, str], variable: Callable[[str], str], name_of: Callable[[str], str]
) -> EncoderSettings:
    """The settings in the variables called `variable(name)`.

    Raises:
        OptionError: a value cannot be what it is; the error names `name_of(name)`.
    """
    given = {name: environment.get(variable(name), "").strip() for name in NAMES}
    return EncoderSettings(
        given["encoder"] or None,
        _threads(given["threads"], name_of("threads")),
        _cpus(given["cpus"], name_of("cpus")),
        number_setting(given["audit_rate"], name_of("audit_rate"), default=AUDIT_RATE, least=0, most=1),
        _device(given["device"], name_of("device")),
    )


def _device(text: str, name: str) -> Wanted:
    """Whether a GPU can be used is seen where the encoder is loaded."""
    if not text:
        return "auto"
    for wanted in WANTED:
        if text == wanted:
            return wanted
    raise OptionError(name, text, "one of " + ", ".join(WANTED))


def _threads(text: str, name: str) -> int:
    cores = len(os.sched_getaffinity(0))
    if not text:
        return max(1, cores // CPUS_A_THREAD)
    if not text.isdecimal() or not 1 <= int(text) <= cores:
        raise OptionError(name, text, f"an integer from 1 to {cores}, the cores that this process may use")
    return int(text)


def _cpus(text: str, name: str) -> frozenset[int] | None:
    """Cores out of a list of numbers and ranges, as `taskset` takes it; None for an empty text."""
    if not text:
        return None
    usable = os.sched_getaffinity(0)
    allowed = f"a list such as 0-3,8 of cores that this process may use ({_listed(usable)})"
    cores: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
            raise OptionError(name, text, allowed)
        cores.update(range(int(first), min(int(last), max(usable) + 1) + 1))
    if not cores <= usable:
        raise OptionError(name, text, allowed)
    return frozenset(cores)


def _listed(cores: set[int]) -> str:
    return ",".join(map(str, sorted(cores)))
