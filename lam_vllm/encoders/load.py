"""An encoder by name: a profile of configs/encoders, a folder, or a model hub's name."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lam_vllm.encoders.base import Encoder
from lam_vllm.errors import EncoderError, InputFileError, MissingExtraError, OptionError
from lam_vllm.resources import resource

DEFAULT_THRESHOLD_COS = 0.95


class EncoderProfile(BaseModel):
    """One file of configs/encoders. Frozen; unknown keys are errors. Exactly one of `model` and `package` is set."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    model: str | None = None
    """A folder or a model hub's name."""
    package: str | None = None
    """An installed Python package that holds the model's files."""
    folder: str = "."
    """The model's folder inside `package`."""
    threshold_cos: float = Field(default=DEFAULT_THRESHOLD_COS, gt=0.0, le=1.0)
    """t for this encoder; each one needs its own."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.model is None) == (self.package is None):
            raise ValueError("exactly one of model and package is needed")
        return self


def load_encoder(name: str, threshold_cos: float | None = None) -> Encoder:
    """The canonical encoder called `name`: the profile of that name if there is one, else a folder, else a hub name.

    Raises:
        OptionError: `threshold_cos` is not in (0, 1].
        MissingExtraError: torch or sentence-transformers, or the package of the profile, is not installed.
        InputFileError: the profile's file is not a profile.
        EncoderError: the model cannot be found or loaded; names the encoder and the cause.
    """
    if threshold_cos is not None and not 0.0 < threshold_cos <= 1.0:
        raise OptionError("threshold_cos", threshold_cos, "a number above 0 and at most 1")
    for library in ("torch", "sentence_transformers"):
        if find_spec(library) is None:
            raise MissingExtraError("an encoder", "encoder", "profile exact")
    profile = _profile(name)
    from lam_vllm.encoders.sentence_transformer import SentenceTransformerEncoder

    try:
        return SentenceTransformerEncoder(_folder(profile, name), name, threshold_cos or profile.threshold_cos)
    except (EncoderError, MissingExtraError):
        raise
    except Exception as error:  # the libraries raise many kinds for a file that is missing, broken or of another model
        raise EncoderError(f"encoder {name!r} cannot be loaded: {type(error).__name__}: {error}") from error


def _profile(name: str) -> EncoderProfile:
    path = resource("configs") / "encoders" / f"{name}.yaml"
    if Path(name).name != name or not path.is_file():
        return EncoderProfile(model=name)
    try:
        return EncoderProfile.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InputFileError(path, f"not an encoder profile: {place}{': ' if place else ''}{first['msg']}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputFileError(path, f"not YAML: {error}") from None


def _folder(profile: EncoderProfile, name: str) -> Path:
    if profile.package is not None:
        spec = find_spec(profile.package)
        if spec is None or not spec.submodule_search_locations:
            raise MissingExtraError(f"the encoder {name!r}", "demo", "another encoder")
        return Path(spec.submodule_search_locations[0]) / profile.folder
    assert profile.model is not None  # the profile's own check
    if Path(profile.model).is_dir():
        return Path(profile.model)
    return _download(profile.model)


def _download(model: str) -> Path:
    """The local folder of a hub's model: from its cache when the hub cannot be reached, and only the files needed."""
    from huggingface_hub import snapshot_download

    from lam_vllm.encoders.sentence_transformer import MODEL_FILES

    return Path(snapshot_download(model, allow_patterns=list(MODEL_FILES), ignore_patterns=["onnx/*", "openvino/*"]))
