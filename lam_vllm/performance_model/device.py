"""A machine as the model sees it: ten constants, each with its source, and an engine on it where one was measured."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from lam_vllm.errors import InputFileError, OptionError
from lam_vllm.performance_model.served import Served

Kind = Literal["printed", "measured", "data sheet", "fitted", "estimated"]
"""Printed in the paper; measured by a command that `source` names; a vendor's; chosen so that printed cells come out;
derived from another constant for want of a measurement."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A number of the model: its value, unit, where it comes from, and of what kind it is.

    Raises:
        OptionError: `value` is not a finite number above 0; there is no such kind.
    """

    value: float
    unit: str
    source: str
    kind: Kind

    def __post_init__(self) -> None:
        if not (_is_number(self.value) and 0 < self.value < math.inf):
            raise OptionError(f"value of a constant in {self.unit}", self.value, "a finite number above 0")
        if self.kind not in get_args(Kind):
            raise OptionError("kind", self.kind, ", ".join(get_args(Kind)))


@dataclass(frozen=True, slots=True)
class Device:
    """The machine that serves, and the rates of the compactor beside it.

    Raises:
        OptionError: `prefill_efficiency` is above 1.
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
        if self.prefill_efficiency.value > 1:
            raise OptionError("prefill_efficiency", self.prefill_efficiency.value, "a share, at most 1")

    @property
    def prefill_rate(self) -> float:
        """FLOP per second of prefill."""
        return self.prefill_efficiency.value * self.matrix_rate.value

    @property
    def constants(self) -> dict[str, Constant]:
        """All constants by name."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name in CONSTANTS}

    def json(self) -> dict[str, Any]:
        """What `read_device` reads."""
        return asdict(self)


CONSTANTS = tuple(each.name for each in fields(Device) if each.name not in ("name", "served"))
_Part = TypeVar("_Part", Constant, Served)


def read_device(path: Path) -> Device:
    """The device in a JSON file: `name`, for each constant an object of value, unit, source and kind, maybe `served`.

    Raises:
        InputFileError: the file cannot be read, or a name is missing, unknown or has no such object.
        OptionError: a constant has a value that it cannot have; names the constant.
    """
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputFileError(path, f"not a JSON file: {error}") from None
    names = ["name", *CONSTANTS]
    if not isinstance(described, dict) or set(described) - {"served"} != set(names):
        raise InputFileError(path, f"expected an object with {', '.join(names)}")
    constants = {name: _constant(path, name, described[name]) for name in CONSTANTS}
    served = described.get("served")
    return Device(str(described["name"]), **constants, served=served and _part(path, "served", served, Served))


def _constant(path: Path, name: str, described: Any) -> Constant:
    try:
        return _part(path, name, described, Constant)
    except OptionError as error:
        raise OptionError(name, error.value, error.allowed) from None


def _part(path: Path, name: str, described: Any, kind: type[_Part]) -> _Part:
    keys = [each.name for each in fields(kind)]
    if not isinstance(described, dict) or set(described) != set(keys):
        raise InputFileError(path, f"{name}: expected an object with {', '.join(keys)}")
    return kind(**described)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
