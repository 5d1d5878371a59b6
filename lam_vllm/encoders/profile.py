"""What an encoder's name stands for: a profile of the user's folder or of configs/encoders, read and written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from lam_vllm.errors import InputFileError
from lam_vllm.resources import resource

DEFAULT_THRESHOLD_COS = 0.95
SUFFIX = ".yaml"
_SERVER_NEEDS = ("served_model", "tokenizer", "fingerprint")
_SERVER_ONLY = (*_SERVER_NEEDS, "api_key_variable", "window_tokens")

_Text = Annotated[str, Field(min_length=1)]


class EncoderProfile(BaseModel):
    """One encoder, as a file says it. Frozen; unknown keys are errors.

    Exactly one of `model`, `package` and `server` is set; what belongs to a server is set only with `server`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    model: str | None = None
    """A folder or a model hub's name."""
    package: str | None = None
    """An installed Python package that holds the model's files."""
    folder: str = "."
    """The model's folder inside `package`."""
    server: str | None = None
    """Base URL of an OpenAI-compatible server, with or without /v1."""
    served_model: _Text | None = None
    """The model's name on that server."""
    tokenizer: _Text | None = None
    """The served model's tokenizer: a folder, a tokenizer.json file or a model hub's name. It cuts the windows."""
    fingerprint: _Text | None = None
    """The operator's word for everything that decides the bits of the server's embeddings."""
    api_key_variable: _Text | None = None
    """The environment variable that holds the server's key; none where it asks for no key."""
    window_tokens: Annotated[int, Field(ge=1)] | None = None
    """Content tokens that the served model takes at once, its special tokens not counted; 510 where none is said."""
    threshold_cos: float = Field(default=DEFAULT_THRESHOLD_COS, gt=0.0, le=1.0)
    """t for this encoder; each one needs its own."""
    guard_band: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] | None = None
    """Least guard band, a difference of cosines, measured on the user's traces."""
    guard_band_fingerprint: _Text | None = None
    """The encoder fingerprint that `guard_band` was measured with."""
    max_abs: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    """The largest |x| of any coordinate over the calibration: the error allowed to a kept embedding is a part of it."""
    basis: _Text | None = None
    """An orthonormal basis (.npy) for `search: pruned`; in a file, a relative name is beside that file."""

    @field_validator("server")
    @classmethod
    def _plain_url(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)  # its ValueErrors say what is wrong
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not allowed; allowed: http://HOST:PORT or https://HOST, with or without /v1")
        if "@" in parts.netloc or parts.query or parts.fragment:  # errors name the URL, so it must hold no secret
            raise ValueError("a user, a query or a fragment is not allowed; a key belongs in api_key_variable")
        return url

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if sum(source is not None for source in (self.model, self.package, self.server)) != 1:
            raise ValueError("exactly one of model, package and server is needed")
        if self.server is not None:
            if missing := [name for name in _SERVER_NEEDS if getattr(self, name) is None]:
                raise ValueError(f"server needs {' and '.join(missing)} beside it")
        elif given := [name for name in _SERVER_ONLY if getattr(self, name) is not None]:
            raise ValueError(f"{' and '.join(given)}: only allowed with server")
        if (self.guard_band is None) != (self.guard_band_fingerprint is None):
            raise ValueError("guard_band and guard_band_fingerprint are given together or not at all")
        return self


def user_profiles() -> Path:
    """The folder of the user's own profiles, which may not exist: in $XDG_CONFIG_HOME, or in ~/.config."""
    stated = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    # The XDG specification asks that a relative path be ignored.
    return (stated if stated.is_absolute() else Path.home() / ".config") / "lam-vllm" / "encoders"


def read_profile(name: str) -> EncoderProfile:
    """What `name` stands for: a profile's file (it ends in .yaml), the user's profile, a shipped one, else a model.

    Raises:
        InputFileError: the file cannot be read, or is not a profile; names the file and the field.
    """
    if name.endswith(SUFFIX):
        return _read(Path(name))
    if Path(name).name == name:
        for folder in (user_profiles(), resource("configs") / "encoders"):
            path = folder / f"{name}{SUFFIX}"
            if os.path.lexists(path):  # False also where the user's folder may not be looked into
                return _read(path)
    return EncoderProfile(model=name)


def write_profile(profile: EncoderProfile, path: Path) -> None:
    """Writes the file whole or not at all, its folder too where there is none; `read_profile` gives `profile` back.

    Raises:
        InputFileError: the name does not end in .yaml, or the file cannot be written.
    """
    if path.suffix != SUFFIX:
        raise InputFileError(path, f"a profile's file name ends in {SUFFIX}")
    fields = profile.model_dump(exclude_none=True, exclude=None if profile.package else {"folder"})
    draft = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # Escaped where it is not ASCII: U+0085 and its like are line ends to YAML, and would come back as spaces.
            draft.write_text(yaml.safe_dump(fields, sort_keys=False), encoding="utf-8")
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise InputFileError(path, f"cannot be written: {error.strerror or error}") from None


def _read(path: Path) -> EncoderProfile:
    try:
        profile = EncoderProfile.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
        if profile.basis is not None and not Path(profile.basis).is_absolute():
            return profile.model_copy(update={"basis": str(path.absolute().parent / profile.basis)})
        return profile
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InputFileError(path, f"not an encoder profile: {place}{': ' if place else ''}{first['msg']}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputFileError(path, f"not YAML: {error}") from None
    except OSError as error:
        raise InputFileError(path, f"cannot be read: {error.strerror or error}") from None
