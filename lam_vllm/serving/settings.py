"""How a server was started: from the environment, and from a YAML file under it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from lam_vllm.config import make_config, read_values
from lam_vllm.errors import OptionError
from lam_vllm.serving.encoder_settings import NAMES as ENCODER_NAMES
from lam_vllm.serving.encoder_settings import EncoderSettings, encoder_settings
from lam_vllm.serving.limits import NAMES as LIMIT_NAMES
from lam_vllm.serving.limits import Limits, read_limits
from lam_vllm.serving.numbers import number_setting
from lam_vllm.serving.options import FIELDS, FLAGS, Given, Mode, Options, overlaid
from lam_vllm.serving.rollout import Rollout, model_defaults
from lam_vllm.serving.store_settings import KEY, KEY_FILE, server_key, store_settings
from lam_vllm.serving.store_settings import NAMES as STORE_NAMES
from lam_vllm.stores import StoreSettings

SERVER_NAMES = (*ENCODER_NAMES, *STORE_NAMES, KEY_FILE, *LIMIT_NAMES, "canary")
SETTINGS = (*FIELDS, *SERVER_NAMES, "config")
"""Everything that has a variable and a flag."""
KEY_PLACES = f"LAM_KEY in the environment, or a file that {KEY_FILE} names: flags and options are read by others"


@dataclass(frozen=True, slots=True)
class Settings:
    """What applies to a request that says nothing, and how the encoder, the store and the rollout are set up."""

    options: Options
    encoder: EncoderSettings = field(default_factory=EncoderSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    limits: Limits = field(default_factory=Limits)
    rollout: Rollout = field(default_factory=Rollout)

    @property
    def is_on(self) -> bool:
        """Whether any request is looked at that does not ask for it."""
        return any(options.mode != "off" for options in (self.options, *self.rollout.models.values()))

    @property
    def profiles(self) -> set[str | None]:
        """The profiles of the server's default and of its models'."""
        return {options.config.profile for options in (self.options, *self.rollout.models.values())}


def variable(name: str) -> str:
    """Name of the environment variable that holds the setting `name`."""
    return "LAM_" + name.upper()


def server_settings(
    environment: Mapping[str, str], name_of: Callable[[str], str] = variable, *, on: bool = False
) -> Settings:
    """The settings in `LAM_*` variables.

    The default is off unless a profile is named, or `enabled` says otherwise, or the server is there for nothing else:
    then it is `on`.

    Raises:
        InputFileError: `LAM_CONFIG` is not a readable YAML mapping.
        OptionError: a value cannot be what it is; the error names `name_of(name)`, or the path in the file.
    """
    values = _values_of_file(environment)
    if KEY in values:
        raise OptionError(KEY, "(not shown)", KEY_PLACES)
    known = _over(values, environment)
    models = values.pop("models", None)
    of_requests = {name: value for name, value in values.items() if name not in SERVER_NAMES}
    options = _options(of_requests, known, name_of, on=on)
    canary = number_setting(known.get(variable("canary"), "").strip(), name_of("canary"), default=1, least=0, most=1)
    return Settings(
        options,
        encoder_settings(known, variable, name_of),
        store_settings(known, variable, name_of),
        read_limits(known, variable, name_of),
        Rollout(canary, model_defaults(models, options)),
    )


def settings_of_processes(environment: Mapping[str, str], processes: int) -> Settings:
    """As `server_settings`; several processes share a file of the user's, unless a store is named. Raises likewise."""
    settings = server_settings(environment)
    if processes == 1 or settings.store.url is not None:
        return settings
    state = environment.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return server_settings({**environment, variable("store_url"): str(Path(state) / "lam-vllm/store.sqlite")})


def key_of(
    environment: Mapping[str, str], settings: Settings, processes: int, name_of: Callable[[str], str] = variable
) -> bytes:
    """The server's key: one of its own where nothing but one process reads what is kept under it.

    Raises:
        OptionError: several processes do, one after the other or at the same time, and no key is named; or it is none.
    """
    required = processes > 1 or settings.store.url is not None
    return server_key(_over(_values_of_file(environment), environment), variable, name_of, required=required)


def _values_of_file(environment: Mapping[str, str]) -> dict[str, Any]:
    path = environment.get(variable("config"))
    return read_values(path) if path else {}


def _over(values: Mapping[str, Any], environment: Mapping[str, str]) -> Mapping[str, str]:
    """The environment, and under it what the file says of the server itself."""
    return {variable(name): _plain(values[name]) for name in SERVER_NAMES if name in values} | dict(environment)


def _options(
    values: dict[str, Any], environment: Mapping[str, str], name_of: Callable[[str], str], *, on: bool
) -> Options:
    given = {name: Given(values.pop(name), name) for name in ("enabled", *FLAGS) if name in values}
    base = Options("off", make_config(values), store=True)
    given |= {
        name: Given(_parse(name, environment[variable(name)], name_of(name)), name_of(name))
        for name in FIELDS
        if variable(name) in environment
    }
    options = overlaid(base, given, has_encoder=True, has_basis=True)
    if options.config.observations != "tool":
        raise OptionError(name_of("observations"), options.config.observations, "tool; a request may ask for tool+user")
    implied: Mode = "on" if on or options.config.profile else "off"
    mode = options.mode if "enabled" in given else implied
    return Options(mode, options.config, options.store, options.usage)


def _plain(value: Any) -> str:
    """A YAML value as its variable would say it."""
    return ",".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)


def _parse(name: str, text: str, name_to_show: str) -> Any:
    if name == "exclude_tools":
        return [tool.strip() for tool in text.split(",") if tool.strip()]
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise OptionError(name_to_show, text, "a plain value") from None
