"""What one request asks for, merged over its carriers, and what the server does unless asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from lam_vllm.config import CompactorConfig, make_config, read_values
from lam_vllm.errors import OptionError
from lam_vllm.serving.encoder_settings import NAMES as ENCODER_NAMES
from lam_vllm.serving.encoder_settings import EncoderSettings, encoder_settings

Mode = Literal["off", "on", "observe"]

CONFIG_FIELDS = (
    "profile",
    "algorithm",
    "threshold_cos",
    "observations",
    "exclude_tools",
    "min_tokens",
    "directory_aliases",
    "max_reference_distance_tokens",
)
FIELDS = ("enabled", *CONFIG_FIELDS, "store")
SETTINGS = (*FIELDS, *ENCODER_NAMES, "config")

_MODES: dict[object, Mode] = {True: "on", False: "off", "on": "on", "off": "off", "observe": "observe"}
_CARRIER = "true, false, observe, off, or an object of options"
_NEEDS_ENCODER = (
    "exact; guarded and paper need an encoder: pip install 'lam-vllm[encoder]' and start the server with --lam-encoder"
)


@dataclass(frozen=True, slots=True)
class Options:
    """What to do with one request: `config` decides the bytes, `store` whether removed text is kept for look-ups."""

    mode: Mode
    config: CompactorConfig
    store: bool


@dataclass(frozen=True, slots=True)
class Settings:
    """How the server was started: what applies to a request that says nothing, and the encoder."""

    options: Options
    encoder: EncoderSettings


@dataclass(frozen=True, slots=True)
class _Given:
    """A value and the name its user wrote it under, which is the name an error has to use."""

    value: Any
    name: str


def variable(field: str) -> str:
    """Name of the environment variable that holds the server's default for `field`."""
    return "LAM_" + field.upper()


def server_settings(environment: Mapping[str, str], name_of: Callable[[str], str] = variable) -> Settings:
    """The settings in `LAM_*` variables. The default is off unless a profile is named or `enabled` says otherwise.

    Raises:
        InputFileError: `LAM_CONFIG` is not a readable YAML mapping.
        OptionError: a value cannot be what it is; the error names `name_of(field)`.
    """
    path = environment.get(variable("config"))
    values = read_values(path) if path else {}
    of_encoder = {variable(name): _plain(values.pop(name)) for name in ENCODER_NAMES if name in values}
    base = make_config(values)
    given = {
        field: _Given(_parse(field, environment[variable(field)], name_of(field)), name_of(field))
        for field in FIELDS
        if variable(field) in environment
    }
    config = _config(base, given)
    if config.observations != "tool":
        raise OptionError(name_of("observations"), config.observations, "tool; a request may ask for tool+user")
    implied: Mode = "on" if config.profile else "off"
    mode = _mode(given["enabled"]) if "enabled" in given else implied
    return Settings(
        Options(mode, config, _store(given, default=True)),
        encoder_settings({**of_encoder, **environment}, variable, name_of),
    )


def request_options(
    default: Options,
    *,
    header: str | None = None,
    field: Any = None,
    xargs: Mapping[str, Any] | None = None,
    has_encoder: bool = False,
) -> Options:
    """The options of a request: header over body field over `vllm_xargs` over `default`, key by key.

    An explicit off in any carrier wins over everything else the request says. Naming any other option turns a server
    that is off by default on for this request; one that only observes keeps observing unless `enabled` is named.

    Raises:
        OptionError: a carrier cannot be read, an option does not exist or has a value it cannot have, or the profile
            needs an encoder and there is none. The field is the name as the user wrote it.
    """
    given = _merged(header, field, xargs)
    if given is None:
        return Options("off", default.config, default.store)
    if not given:
        return default
    implied: Mode = "on" if default.mode == "off" else default.mode
    mode = _mode(given["enabled"]) if "enabled" in given else implied
    config = _config(default.config, given)
    if config.profile in ("guarded", "paper") and not has_encoder:
        name = given["profile"].name if "profile" in given else "profile"
        raise OptionError(name, config.profile, _NEEDS_ENCODER)
    return Options(mode, config, _store(given, default.store))


def _merged(header: str | None, field: Any, xargs: Mapping[str, Any] | None) -> dict[str, _Given] | None:
    """The options that the carriers name, lowest carrier first; None when one of them says off."""
    merged: dict[str, _Given] = {}
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
    for key, entry in merged.items():
        if key not in FIELDS:
            raise OptionError(entry.name, entry.value, "one of the options " + ", ".join(FIELDS))
    return merged


def _read(carrier: str, header: str | None, field: Any, xargs: Mapping[str, Any] | None) -> dict[str, _Given]:
    if carrier == "vllm_xargs":
        return _from_xargs(xargs)
    return _from_value(field, carrier) if carrier == "lam" else _from_header(header)


def _from_xargs(xargs: Mapping[str, Any] | None) -> dict[str, _Given]:
    if not isinstance(xargs, Mapping):
        return {}
    return {
        key.removeprefix("lam_"): _Given(value, f"vllm_xargs.{key}")
        for key, value in xargs.items()
        if isinstance(key, str) and key.startswith("lam_")
    }


def _from_header(header: str | None) -> dict[str, _Given]:
    if header is None:
        return {}
    text = header.strip()
    if text in _MODES:
        return {"enabled": _Given(text, "x-lam")}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise OptionError("x-lam", header, "off, or JSON: " + _CARRIER) from None
    return _from_value(value, "x-lam")


def _from_value(value: Any, carrier: str) -> dict[str, _Given]:
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return {str(key): _Given(each, f"{carrier}.{key}") for key, each in value.items()}
    if isinstance(value, bool | str) and value in _MODES:
        return {"enabled": _Given(value, carrier)}
    raise OptionError(carrier, value, _CARRIER)


def _says_off(value: Any) -> bool:
    return isinstance(value, bool | int | str) and _MODES.get(value) == "off"


def _mode(given: _Given) -> Mode:
    # 0 and 1 are equal to False and True, and the only booleans that vllm_xargs can carry.
    if isinstance(given.value, bool | int | str) and given.value in _MODES:
        return _MODES[given.value]
    raise OptionError(given.name, given.value, "true, false, observe")


def _store(given: Mapping[str, _Given], default: bool) -> bool:
    if "store" not in given:
        return default
    value = given["store"].value
    if isinstance(value, bool | int) and value in (0, 1):
        return bool(value)
    raise OptionError(given["store"].name, value, "true, false")


def _config(base: CompactorConfig, given: Mapping[str, _Given]) -> CompactorConfig:
    values = {field: given[field].value for field in CONFIG_FIELDS if field in given}
    if isinstance(values.get("directory_aliases"), int) and values["directory_aliases"] in (0, 1):
        values["directory_aliases"] = bool(values["directory_aliases"])  # the only booleans of vllm_xargs
    if not values:
        return base
    try:
        return make_config({**base.model_dump(), **values})
    except OptionError as error:
        raise OptionError(given[error.field].name, error.value, error.allowed) from None


def _plain(value: Any) -> str:
    """A YAML value as its variable would say it."""
    return ",".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)


def _parse(field: str, text: str, name: str) -> Any:
    if field == "exclude_tools":
        return [tool.strip() for tool in text.split(",") if tool.strip()]
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise OptionError(name, text, "a plain value") from None
