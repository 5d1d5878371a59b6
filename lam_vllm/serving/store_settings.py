"""Where the server keeps removed text and embeddings, and the key that its hashes are made with."""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from lam_vllm.errors import OptionError
from lam_vllm.serving.numbers import integer_setting
from lam_vllm.stores import StoreSettings
from lam_vllm.stores.base import MEMORY_BYTES, RETENTION_SECONDS, SCHEMES
from lam_vllm.stores.open import file_of
from lam_vllm.stores.ownership import why_foreign

NAMES = ("store_url", "store_bytes", "store_retention_seconds")
KEY_FILE, KEY = "key_file", "key"
"""The key itself comes from the environment alone: a flag could be read in the list of processes."""
STORE_BYTES = 1_000_000_000
LEAST_KEY_BYTES = 16
KEY_BYTES = 32

_URLS = "the path of a file, sqlite:///PATH, redis://, rediss:// or valkey:// with a host, or unix://PATH"


def store_settings(
    environment: Mapping[str, str], variable: Callable[[str], str], name_of: Callable[[str], str]
) -> StoreSettings:
    """The settings in the variables called `variable(name)`.

    Raises:
        OptionError: a value cannot be what it is; the error names `name_of(name)`, and shows no password.
    """
    given = {name: environment.get(variable(name), "").strip() for name in NAMES}
    url = _url(given["store_url"], name_of("store_url"))
    return StoreSettings(
        url,
        integer_setting(
            given["store_bytes"], name_of("store_bytes"), default=MEMORY_BYTES if url is None else STORE_BYTES, least=0
        ),
        _seconds(given["store_retention_seconds"], name_of("store_retention_seconds")),
    )


def server_key(
    environment: Mapping[str, str],
    variable: Callable[[str], str],
    name_of: Callable[[str], str],
    *,
    required: bool,
) -> bytes:
    """32 bytes made of the key in the environment, or else of the key file; a random key where there is neither.

    Raises:
        OptionError: the key is too short, or cannot be read, or is required and not there. It shows no part of the key.
    """
    name, secret = name_of(KEY), environment.get(variable(KEY), "").encode("utf-8", "surrogateescape").strip()
    path = environment.get(variable(KEY_FILE), "").strip()
    if not secret and path:
        name, secret = name_of(KEY_FILE), _read(path, name_of(KEY_FILE))
    elif not secret:
        if required:
            raise OptionError(
                name_of(KEY_FILE),
                None,
                f"a file with a secret key, or one in {variable(KEY)}: what is shared by processes, or outlives one, "
                "needs a key that does so too",
            )
        return secrets.token_bytes(KEY_BYTES)
    if len(secret) < LEAST_KEY_BYTES:
        raise OptionError(name, f"({len(secret)} bytes)", f"a secret key of at least {LEAST_KEY_BYTES} bytes")
    return hashlib.blake2b(secret, digest_size=KEY_BYTES, person=b"lam server key").digest()


def _read(path: str, name: str) -> bytes:
    try:
        return Path(path).read_bytes().strip()
    except OSError as error:
        raise OptionError(name, path, f"a file that can be read ({error.strerror})") from None


def _url(text: str, name: str) -> str | None:
    if not text:
        return None
    try:
        parts = urlsplit(text)
        known = parts.scheme in SCHEMES and parts.port != 0
    except ValueError:
        raise OptionError(name, "a URL that cannot be read", _URLS) from None
    nowhere = not file_of(text).name if parts.scheme in ("", "sqlite") else not (parts.netloc or parts.path)
    if not known or nowhere:
        raise OptionError(name, StoreSettings(text, 0, 0.0).label, _URLS)
    if parts.scheme in ("", "sqlite"):
        _refuse_foreign(file_of(text), name)
    return text


def _refuse_foreign(path: Path, name: str) -> None:
    try:
        why = why_foreign(path)
    except OSError:  # it may be there later; until then requests go on, and the loss is counted
        return
    if why is not None:
        raise OptionError(name, str(path), f"a file of its own, made where there is none; what is there {why}")


def _seconds(text: str, name: str) -> float:
    try:
        seconds = float(text or RETENTION_SECONDS)
    except ValueError:
        seconds = math.nan
    if not 0.0 < seconds < math.inf:
        raise OptionError(name, text, "a number of seconds above 0")
    return seconds
