"""A machine as the model sees it: ten constants, each with its source, and an engine on it where one was measured."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from lam_vllm.errors import InputFileError, OptionError
from lam_vllm.performance_model.amount import is_number
from lam_vllm.performance_model.json_file import read_object
from lam_vllm.performance_model.model import Model
from lam_vllm.performance_model.served import Served

Kind = Literal["printed", "measured", "data sheet", "fitted", "estimated"]
"""Printed in the paper; measured by a command that `source` names; a vendor's; chosen so that printed cells come out;
derived from another constant for want of a measurement."""
LEAST, MOST = 1e-9, 1e24
"""Of a device's constants, in their units: no machine is near either, and no time comes out without end."""
UNITS = {
    "memory_bandwidth": "B/s",
    "matrix_rate": "FLOP/s",
    "prefill_efficiency": "1",
    "memory": "B",
    "encoder_rate": "tok/s",
    "quantize_rate": "B/s",
    "hash_rate": "B/s",
    "verify_rate": "pair/s",
    "codec_rate": "B/s",
    "exact_rate": "tok/s",
}


@dataclass(frozen=True, slots=True)
class Constant:
    """A number of the model: its value, unit, where it comes from, and of what kind it is.

    Raises:
        OptionError: `value` is not a finite number above 0; there is no such kind; unit or source is not a text, or
            empty.
    """

    value: float
    unit: str
    source: str
    kind: Kind

    def __post_init__(self) -> None:
        if not (is_number(self.value) and 0 < self.value < math.inf):
            raise OptionError(f"value of a constant in {self.unit}", self.value, "a finite number above 0")
        if self.kind not in get_args(Kind):
            raise OptionError("kind", self.kind, ", ".join(get_args(Kind)))
        for name in ("unit", "source"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise OptionError(f"{name} of a constant", getattr(self, name), "a text that is not empty")


@dataclass(frozen=True, slots=True)
class Device:
    """The machine that serves, and the rates of the compactor beside it.

    Raises:
        OptionError: the name is not a text, or empty; a constant is not in its unit, or outside `LEAST` to `MOST`;
            `prefill_efficiency` is above 1.
    """

    name: str
    memory_bandwidth: Constant
    """Bytes per second that a decode step reads (B_m)."""
    matrix_rate: Constant
    """FLOP per second of half-precision matrix products (F)."""
    prefill_efficiency: Constant
    """Share of `matrix_rate` that prefill reaches (mu)."""
    memory: Constant
    """Bytes for weights and KV cache together (M)."""
    encoder_rate: Constant
    """Tokens per second of the near-duplicate rule's encoder (R_e)."""
    quantize_rate: Constant
    """Bytes per second of Q_eps over embeddings (R_q)."""
    hash_rate: Constant
    """Bytes per second of XXH3 (R_h)."""
    verify_rate: Constant
    """Pairs of windows per second whose l2 distance is verified (R_v)."""
    codec_rate: Constant
    """Bytes per second of the error-bounded codec (R_z)."""
    exact_rate: Constant
    """Tokens per second of profile `exact`, the counting of tokens included."""
    served: Served | None = None
    """What was measured of a model that it serves; the formulas over the constants do not use it."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise OptionError("name", self.name, "a text that is not empty")
        for name, constant in self.constants.items():
            if constant.unit != UNITS[name]:
                raise OptionError(f"unit of {name}", constant.unit, UNITS[name])
            if not LEAST <= constant.value <= MOST:
                raise OptionError(name, constant.value, f"{LEAST:g} to {MOST:g} {constant.unit}")
        if self.prefill_efficiency.value > 1:
            raise OptionError("prefill_efficiency", self.prefill_efficiency.value, "a share, at most 1")

    @property
    def prefill_rate(self) -> float:
        """FLOP per second of prefill."""
        return self.prefill_efficiency.value * self.matrix_rate.value

    @property
    def constants(self) -> dict[str, Constant]:
        """All constants by name."""
        return {name: getattr(self, name) for name in UNITS}

    def json(self) -> dict[str, Any]:
        """What `read_device` reads."""
        return asdict(self)


_Part = TypeVar("_Part", Constant, Served, Model)


def read_device(path: Path) -> Device:
    """The device in a JSON file: `name`, for each constant an object of value, unit, source and kind, maybe `served`.

    Raises:
        InputFileError: the file cannot be read, or a name is missing, unknown or has no such object.
        OptionError: a constant, a coefficient or a size has a value that it cannot have; names it.
    """
    names = ["name", *UNITS]
    expected = f"an object with {', '.join(names)}"
    described = read_object(path, expected)
    if set(described) - {"served"} != set(names):
        raise InputFileError(path, f"expected {expected}")
    constants = {name: _constant(path, name, described[name]) for name in UNITS}
    return Device(described["name"], **constants, served=_served(path, described.get("served")))


def _constant(path: Path, name: str, described: Any) -> Constant:
    try:
        return _part(path, name, described, Constant)
    except OptionError as error:
        raise OptionError(name, error.value, error.allowed) from None


def _served(path: Path, described: Any) -> Served | None:
    if described is None:
        return None
    model = described.get("model") if isinstance(described, dict) else None
    if model is None:
        return _part(path, "served", described, Served)
    return _part(path, "served", {**described, "model": _part(path, "served.model", model, Model)}, Served)


def _part(path: Path, name: str, described: Any, kind: type[_Part]) -> _Part:
    keys = [each.name for each in fields(kind)]
    if not isinstance(described, dict) or set(described) != set(keys):
        raise InputFileError(path, f"{name}: expected an object with {', '.join(keys)}")
    return kind(**described)
