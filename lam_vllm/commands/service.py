"""The command `lam-vllm service`: the routes under /v1/lam and /metrics, without vLLM."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec

from lam_vllm.commands.tokenizer import load_tokenizer
from lam_vllm.errors import MissingExtraError, OptionError

_NEEDED = ("fastapi", "uvicorn")


def run(tokenizer: str, *, host: str, port: int, keys: Sequence[str], argv: Sequence[str]) -> None:
    """Serve until SIGTERM. `argv` holds the `--lam-*` flags.

    Raises:
        MissingExtraError: what serves is not installed; or a profile, or the store, needs an extra.
        OptionError: an argument or a setting is unknown or wrong, or a key is needed and there is none.
        InputFileError: `--lam-config` names no readable YAML mapping.
        EncoderError: the encoder cannot be loaded.
    """
    if any(find_spec(package) is None for package in _NEEDED):
        raise MissingExtraError("service", "service")
    from lam_vllm.metrics import process_metrics
    from lam_vllm.serving.keys import server_keys
    from lam_vllm.serving.launch import settings_of
    from lam_vllm.serving.settings import key_of
    from lam_vllm.serving.standalone import build_standalone
    from lam_vllm.serving.standalone import run as serve
    from lam_vllm.serving.tracing import start_tracing

    rest, environment, settings, name_of = settings_of(argv, os.environ, on=True)
    if rest:
        raise OptionError("argument", rest[0], "--tokenizer, --host, --port, --api-key, and --lam-OPTION")
    start_tracing(environment)
    key = key_of(environment, settings, 1, name_of)
    service = build_standalone(
        settings,
        key=key,
        tokenizer=load_tokenizer(tokenizer).to_str(),
        tokenizer_name=tokenizer,
        metrics=process_metrics(),
    )
    serve(service, host=host, port=port, keys=server_keys(keys, os.environ))
