"""What one request asks for, merged over its carriers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from lam_vllm.config import NO_BASIS, CompactorConfig, make_config
from lam_vllm.errors import OptionError

Mode = Literal["off", "on", "observe"]

CONFIG_FIELDS = (
    "profile",
    "algorithm",
    "threshold_cos",
    "search",
    "observations",
    "exclude_tools",
    "min_tokens",
    "directory_aliases",
    "max_reference_distance_tokens",
)
FLAGS = ("store", "usage")
FIELDS = ("enabled", *CONFIG_FIELDS, *FLAGS)
ASKING = ("enabled", "profile")
"""Options that say whether to compact, where the others say how."""

_MODES: dict[object, Mode] = {True: "on", False: "off", "on": "on", "off": "off", "observe": "observe"}
_CARRIER = "true, false, observe, off, or an object of options"
_NEEDS_ENCODER = (
    "exact; guarded and paper need an encoder: pip install 'lam-vllm[encoder]' and start the server with --lam-encoder"
)


@dataclass(frozen=True, slots=True)
class Options:
    """What to do with one request: `config` decides the bytes, `store` whether something is kept for look-ups.

    `usage` adds the original prompt tokens to the usage of the answer; `asked` says that the request itself asked to be
    compacted, or not to be: by `enabled`, by a profile, or by any option where the server is off.
    """

    mode: Mode
    config: CompactorConfig
    store: bool
    usage: bool = False
    asked: bool = False

    @property
    def keeps(self) -> bool:
        """Whether the texts that are removed, and an index of the windows, are kept."""
        return self.store and self.mode == "on"


@dataclass(frozen=True, slots=True)
class Given:
    """A value and the name its user wrote it under, which is the name an error has to use."""

    value: Any
    name: str


def request_options(
    default: Options,
    *,
    header: str | None = None,
    field: Any = None,
    xargs: Mapping[str, Any] | None = None,
    has_encoder: bool = False,
    has_basis: bool = False,
) -> Options:
    """The options of a request: header over body field over `vllm_xargs` over `default`, key by key.

    An explicit off in any carrier wins over everything else the request says. Naming any other option but `usage` turns
    a server that is off by default on for this request; one that only observes keeps observing unless `enabled` is
    named.

    Raises:
        OptionError: a carrier cannot be read, an option does not exist or has a value it cannot have, the profile needs
            an encoder and there is none, or the search a basis of its. The field is the name as the user wrote it.
    """
    given = _merged(header, field, xargs)
    if given is None:
        return replace(default, mode="off", asked=True)
    return overlaid(default, given, has_encoder=has_encoder, has_basis=has_basis) if given else default


def overlaid(default: Options, given: Mapping[str, Given], *, has_encoder: bool, has_basis: bool) -> Options:
    """`default` with the options that are given, by option name. Raises as `request_options`."""
    for key, entry in given.items():
        if key not in FIELDS:
            raise OptionError(entry.name, entry.value, "one of the options " + ", ".join(FIELDS))
    # `usage` is a wish about the answer: alone it turns nothing on.
    implied: Mode = "on" if default.mode == "off" and given.keys() - {"usage"} else default.mode
    mode = _mode(given["enabled"]) if "enabled" in given else implied
    config = _config(default.config, given)
    if config.profile in ("guarded", "paper") and not has_encoder:
        raise OptionError(_name(given, "profile"), config.profile, _NEEDS_ENCODER)
    if config.search == "pruned" and config.profile != "exact" and has_encoder and not has_basis:
        raise OptionError(_name(given, "search"), config.search, NO_BASIS)
    store, usage = (_flag(given, name, getattr(default, name)) for name in FLAGS)
    asked = mode != default.mode or not given.keys().isdisjoint(ASKING)
    return Options(mode, config, store, usage, asked)


def _name(given: Mapping[str, Given], field: str) -> str:
    """What the user called this option, or its plain name where the default says it."""
    return given[field].name if field in given else field


def _merged(header: str | None, field: Any, xargs: Mapping[str, Any] | None) -> dict[str, Given] | None:
    """The options that the carriers name, lowest carrier first; None when one of them says off."""
    merged: dict[str, Given] = {}
    unreadable: list[OptionError] = []
    for carrier in ("vllm_xargs", "lam", "x-lam"):
        try:
            given = _read(carrier, header, field, xargs)
        except OptionError as error:
            unreadable.append(error)
            continue
        if "enabled" in given and _says_off(given["enabled"].value):
            return None
        merged.update(given)
    if unreadable:
        raise unreadable[0]
    return merged


def _read(carrier: str, header: str | None, field: Any, xargs: Mapping[str, Any] | None) -> dict[str, Given]:
    if carrier == "vllm_xargs":
        return _from_xargs(xargs)
    return given_in(field, carrier) if carrier == "lam" else _from_header(header)


def _from_xargs(xargs: Mapping[str, Any] | None) -> dict[str, Given]:
    if not isinstance(xargs, Mapping):
        return {}
    return {
        key.removeprefix("lam_"): Given(value, f"vllm_xargs.{key}")
        for key, value in xargs.items()
        if isinstance(key, str) and key.startswith("lam_")
    }


def _from_header(header: str | None) -> dict[str, Given]:
    if header is None:
        return {}
    text = header.strip()
    if text in _MODES:
        return {"enabled": Given(text, "x-lam")}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise OptionError("x-lam", header, "off, or JSON: " + _CARRIER) from None
    return given_in(value, "x-lam")


def given_in(value: Any, carrier: str) -> dict[str, Given]:
    """The options that the value of `carrier` names: an object of options, or a word for `enabled`.

    Raises:
        OptionError: it is neither.
    """
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return {str(key): Given(each, f"{carrier}.{key}") for key, each in value.items()}
    if isinstance(value, bool | str) and value in _MODES:
        return {"enabled": Given(value, carrier)}
    raise OptionError(carrier, value, _CARRIER)


def _says_off(value: Any) -> bool:
    return isinstance(value, bool | int | str) and _MODES.get(value) == "off"


def _mode(given: Given) -> Mode:
    # 0 and 1 are equal to False and True, and the only booleans that vllm_xargs can carry.
    if isinstance(given.value, bool | int | str) and given.value in _MODES:
        return _MODES[given.value]
    raise OptionError(given.name, given.value, "true, false, observe")


def _flag(given: Mapping[str, Given], name: str, default: bool) -> bool:
    if name not in given:
        return default
    value = given[name].value
    if isinstance(value, bool | int) and value in (0, 1):
        return bool(value)
    raise OptionError(given[name].name, value, "true, false")


def _config(base: CompactorConfig, given: Mapping[str, Given]) -> CompactorConfig:
    values = {field: given[field].value for field in CONFIG_FIELDS if field in given}
    if isinstance(values.get("directory_aliases"), int) and values["directory_aliases"] in (0, 1):
        values["directory_aliases"] = bool(values["directory_aliases"])  # the only booleans of vllm_xargs
    if not values:
        return base
    try:
        return make_config({**base.model_dump(), **values})
    except OptionError as error:
        raise OptionError(given[error.field].name, error.value, error.allowed) from None
