"""Starting vLLM with the plugin: the flags, the checks that can be made before, and the exec."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from typing import NoReturn

from lam_vllm.encoders.device import choose_device
from lam_vllm.errors import LamError, MissingExtraError, OptionError, UnsupportedServerError
from lam_vllm.serving.settings import KEY_PLACES, SETTINGS, Settings, key_of, server_settings, variable
from lam_vllm.serving.store_settings import KEY

PLUGIN = "lam"
PLUGIN_GROUP = "vllm.endpoint_plugins"
OTHER_GROUPS = (
    "vllm.general_plugins",
    "vllm.platform_plugins",
    "vllm.io_processor_plugins",
    "vllm.stat_logger_plugins",
)
SHUTDOWN_SECONDS = 30
_PREFIX = "--lam-"
_PROCESS_FLAGS = ("--api-server-count", "-asc", "--data-parallel-size", "-dp")
_NO_HOOK = "it runs no Python hook, so the plugin would not see a single request"


def serve(argv: Sequence[str]) -> NoReturn:
    """Replace this process by vLLM's server with the plugin in it. `argv` is MODEL, vLLM's arguments, `--lam-*` flags.

    Exits with code 2 and a message when a flag is wrong or this vLLM cannot run the plugin.
    """
    try:
        arguments, environment = prepare(argv, os.environ)
        command = start_command(arguments)
    except LamError as error:
        print(f"lam-vllm serve: {error}", file=sys.stderr)  # noqa: T201 - this is the command's own message
        raise SystemExit(2) from None
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, command, environment)


def prepare(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """vLLM's arguments without `--lam-*`, and the environment that says what those flags said.

    Raises:
        OptionError: a `--lam-*` flag is unknown, has no value, or has one it cannot have; or a key is needed and there
            is none, or it is none.
        InputFileError: `--lam-config` names no readable YAML mapping.
        MissingExtraError: vLLM is not installed.
        UnsupportedServerError: the arguments ask for a front end without Python, or the plugin cannot be found.
    """
    arguments, prepared, settings, name_of = settings_of(argv, environment)
    key_of(prepared, settings, processes_asked_for(arguments), name_of)
    if find_spec("vllm") is None:
        raise MissingExtraError("serve", "vllm", "the extra 'cpu' on a machine without a GPU")
    refuse_other_front_ends(arguments, environment)
    prepared["VLLM_PLUGINS"] = plugin_names(environment.get("VLLM_PLUGINS"))
    return [*arguments, *_added(_names(arguments))], prepared


def settings_of(
    argv: Sequence[str], environment: Mapping[str, str], *, on: bool = False
) -> tuple[list[str], dict[str, str], Settings, Callable[[str], str]]:
    """What is left of `argv` without `--lam-*`, the environment with them, the settings, and what each is called.

    `on` as in `server_settings`.

    Raises:
        OptionError: a `--lam-*` flag is unknown, has no value, or has one it cannot have; or no GPU can be used and the
            device is to be one.
        InputFileError: `--lam-config` names no readable YAML mapping.
    """
    rest, flags = split_flags(argv)
    prepared = {**environment, **{variable(name): value for name, value in flags.items()}}

    def name_of(name: str) -> str:
        return _flag(name) if name in flags else variable(name)

    settings = server_settings(prepared, name_of, on=on)
    if settings.encoder.device == "cuda":  # seen before an engine is started; the worker looks again
        choose_device("cuda", name_of("device"))
    return rest, prepared, settings, name_of


def processes_asked_for(arguments: Sequence[str]) -> int:
    """API processes and data-parallel replicas that vLLM's arguments name: a check before the start, not the last one.

    What vLLM would not take for a number counts as one.
    """
    most = 1
    for place, argument in enumerate(arguments):
        flag, given, value = argument.partition("=")
        if flag.replace("_", "-") in _PROCESS_FLAGS:
            text = value if given else "".join(arguments[place + 1 : place + 2])
            most = max(most, int(text) if text.isdecimal() else 1)
    return most


def split_flags(argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """vLLM's arguments, and the values of the `--lam-*` flags by option name; the last of equal flags counts.

    Raises:
        OptionError: a flag is unknown or has no value.
    """
    rest: list[str] = []
    flags: dict[str, str] = {}
    arguments = iter(argv)
    for argument in arguments:
        if not argument.startswith(_PREFIX):
            rest.append(argument)
            continue
        flag, given, value = argument.partition("=")
        field = flag.removeprefix(_PREFIX).replace("-", "_")
        if field == KEY:
            raise OptionError(flag, "(not shown)", KEY_PLACES)
        if field not in SETTINGS:
            raise OptionError(flag, value or None, ", ".join(_flag(known) for known in SETTINGS))
        text = value if given else next(arguments, None)
        if text is None or (not given and text.startswith("--")):
            raise OptionError(flag, None, "a value after it")
        flags[field] = text
    return rest, flags


def refuse_other_front_ends(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Pass if the server that `arguments` ask for runs Python on the way of a request.

    Raises:
        UnsupportedServerError: they ask for the Rust front end or for gRPC.
    """
    if environment.get("VLLM_USE_RUST_FRONTEND", "0") not in ("", "0"):
        raise UnsupportedServerError(f"VLLM_USE_RUST_FRONTEND is set: {_NO_HOOK}")
    for flag in ("--grpc", "--grpc-port"):
        if flag in _names(arguments):
            raise UnsupportedServerError(f"{flag} is set: {_NO_HOOK}")


def plugin_names(already: str | None) -> str:
    """The value of VLLM_PLUGINS that loads this plugin and keeps what would have been loaded without it.

    vLLM loads every plugin of its other groups only while the variable is not set.

    Raises:
        UnsupportedServerError: the plugin's entry point is not installed, or does not load.
    """
    found = entry_points(group=PLUGIN_GROUP, name=PLUGIN)
    if not found:
        raise UnsupportedServerError(f"the entry point {PLUGIN!r} of {PLUGIN_GROUP} is not installed: install lam-vllm")
    for entry in found:
        try:
            entry.load()
        except (ImportError, AttributeError) as error:
            raise UnsupportedServerError(f"the entry point {PLUGIN!r} ({entry.value}) does not load: {error}") from None
    if already is None:
        others = {entry.name for group in OTHER_GROUPS for entry in entry_points(group=group)}
        return ",".join([PLUGIN, *sorted(others - {PLUGIN})])
    names = [name for name in already.split(",") if name]
    return ",".join(names if PLUGIN in names else [*names, PLUGIN])


def start_command(arguments: Sequence[str]) -> list[str]:
    """The command that starts vLLM's server: `vllm serve` where this build can, else the way that does the same."""
    python = [sys.executable, "-m"]
    if _has_version("vllm"):
        return [*python, "vllm.entrypoints.cli.main", "serve", *arguments]
    if processes_asked_for(arguments) > 1:
        return [*python, "lam_vllm.serving.subcommand", "serve", *arguments]
    model = ["--model"] if arguments and not arguments[0].startswith("-") else []
    return [*python, "vllm.entrypoints.openai.api_server", *model, *arguments]


def _added(given: set[str]) -> list[str]:
    """Arguments of vLLM's that a user of agents wants, where they were not given.

    Cached tokens in the usage; and an end that lets requests in flight end, where vLLM would cut them off.
    """
    details, shutdown = "--enable-prompt-tokens-details", "--shutdown-timeout"
    added = [] if details in given else [details]
    # A file of vLLM's options may hold another time, and an argument would win over it.
    return added if given & {shutdown, "--config"} else [*added, f"{shutdown}={SHUTDOWN_SECONDS}"]


def _names(arguments: Sequence[str]) -> set[str]:
    """Long flags as vLLM knows them: it takes underscores for dashes, and a value after an equals sign."""
    flags = (argument.partition("=")[0] for argument in arguments if argument.startswith("--"))
    return {flag.replace("_", "-") for flag in flags}


def _flag(field: str) -> str:
    return _PREFIX + field.replace("_", "-")


def _has_version(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True
