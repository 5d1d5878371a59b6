"""An encoder by name: a profile's file, the user's profile, one of configs/encoders, a folder, or a hub's name."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from lam_vllm.encoders.base import BatchEncoder, Traits
from lam_vllm.encoders.device import Device, Wanted, choose_device, device_arrays
from lam_vllm.encoders.profile import EncoderProfile, read_profile
from lam_vllm.errors import EncoderError, MissingExtraError, OptionError

DEFAULT_ENCODER = "bge-base"
"""What a profile that needs an encoder takes where none is named: the paper's."""


def load_encoder(name: str, threshold_cos: float | None = None, device: Wanted = "cpu") -> BatchEncoder:
    """The encoder that `name` stands for (see `read_profile`), in this process or on the profile's server.

    `device` is where one of this process runs; see `choose_device`.

    Raises:
        OptionError: `threshold_cos` is not in (0, 1].
        InputFileError: the profile's file cannot be read, or is not a profile.
        OptionError: `device` is cuda, and the encoder runs on a server of its own.
        MissingExtraError: a library of the extra `encoder` is not installed.
        OptionError: `device` is cuda, and no GPU can be used: names the reason.
        MissingExtraError: the package of the profile is not installed.
        EncoderError: the model cannot be found, loaded or reached; names the encoder and the cause.
    """
    if threshold_cos is not None and not 0.0 < threshold_cos <= 1.0:
        raise OptionError("threshold_cos", threshold_cos, "a number above 0 and at most 1")
    profile = read_profile(name)
    threshold_cos = threshold_cos or profile.threshold_cos
    if profile.server is not None:
        from lam_vllm.encoders.remote import RemoteEncoder

        elsewhere = f"the encoder {name!r} runs on a server of its own"
        if device == "cuda":
            raise OptionError("device", device, f"cpu or auto: {elsewhere}")
        return RemoteEncoder(profile, name, threshold_cos, _traits(profile, Device("cpu", elsewhere)))
    for library in ("torch", "sentence_transformers"):
        if find_spec(library) is None:
            raise MissingExtraError("an encoder", "encoder", "profile exact")
    from lam_vllm.encoders.sentence_transformer import SentenceTransformerEncoder

    chosen = choose_device(device)
    try:
        traits = _traits(profile, chosen)
        return SentenceTransformerEncoder(_folder(profile, name), name, threshold_cos, traits)
    except (EncoderError, MissingExtraError):
        raise
    except Exception as error:  # the libraries raise many kinds for a file that is missing, broken or of another model
        raise EncoderError(f"encoder {name!r} cannot be loaded: {type(error).__name__}: {error}") from error


def _traits(profile: EncoderProfile, device: Device) -> Traits:
    return Traits(profile.max_abs, profile.basis, device, device_arrays(device))


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
