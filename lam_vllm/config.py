"""What a compaction depends on, written once: names, types, defaults and ranges."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lam_vllm.errors import InputFileError, MissingExtraError, OptionError

ALGORITHM = 1
Profile = Literal["exact", "guarded", "paper"]
SearchName = Literal["exhaustive", "banded", "pruned"]


class CompactorConfig(BaseModel):
    """Everything besides the messages that decides an output's bytes. Frozen; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    profile: Profile | None = None
    """`exact`, `guarded` or `paper`; None is `guarded` with an encoder and `exact` without one."""
    algorithm: int = Field(default=ALGORITHM, ge=1, le=ALGORITHM)
    """Version of wording and rules. A release that would change bytes adds a number and keeps the old ones."""
    threshold_cos: float | None = Field(default=None, gt=0.0, le=1.0)
    """t: two windows are near when their cosine is at least this; None takes the encoder's own."""
    search: SearchName = "exhaustive"
    """How near windows are looked for: `pruned` finds all that `exhaustive` does, sooner; `banded` may miss some."""
    observations: Literal["tool", "tool+user"] = "tool"
    """`tool+user` also takes a user message that directly follows an assistant message for tool output."""
    exclude_tools: tuple[str, ...] = ()
    """Results of tools with these names are never shortened; later results may still refer to them."""
    min_tokens: int = Field(default=16, ge=0)
    """Nothing shorter than this many tokens is replaced; 0 leaves the decision to the price of the stub."""
    directory_aliases: bool = False
    """Listings print a directory that begins many of their lines once, and a short name for it in those lines."""
    max_reference_distance_tokens: int | None = Field(default=None, ge=1)
    """A reference never reaches further back than this; None is no limit (for models with a sliding window)."""
    max_observation_bytes: int = Field(default=8_000_000, ge=1)
    """An observation with more UTF-8 bytes passes whole (reason `cap_observation_bytes`)."""
    max_windows: int = Field(default=512, ge=0)
    """Windows embedded per request, counted from its first message; later ones get `exact` (`cap_windows`)."""

    def digest(self, *context: str) -> str:
        """Hex digest of this config and of what else names the algorithm (encoder fingerprint, tokenizer)."""
        text = json.dumps([self.model_dump(mode="json"), *context], sort_keys=True, ensure_ascii=False)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def make_config(values: dict[str, Any], prefix: str = "") -> CompactorConfig:
    """A config from plain values, as they come out of YAML or JSON.

    Raises:
        OptionError: a key is unknown or a value is out of range; names the field, the value and what is allowed.
    """
    if isinstance(values.get("exclude_tools"), list):
        values = {**values, "exclude_tools": tuple(values["exclude_tools"])}
    try:
        return CompactorConfig(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        raise OptionError(prefix + name, values.get(name), allowed(name)) from None


def allowed(name: str) -> str:
    """What the option called `name` may be, in words a user can act on."""
    return _ALLOWED.get(name, "one of " + ", ".join(sorted(CompactorConfig.model_fields)))


_ALLOWED = {
    "profile": "exact, guarded, paper",
    "algorithm": f"an integer from 1 to {ALGORITHM}",
    "threshold_cos": "a number above 0 and at most 1",
    "search": "exhaustive, banded, pruned",
    "observations": "tool, tool+user",
    "exclude_tools": "a list of tool names",
    "min_tokens": "an integer of at least 0",
    "directory_aliases": "true or false",
    "max_reference_distance_tokens": "an integer of at least 1, or null",
    "max_observation_bytes": "an integer of at least 1",
    "max_windows": "an integer of at least 0",
}
NO_BASIS = "exhaustive, banded; pruned needs an encoder whose profile names a basis"
"""What `search` may be under an encoder without one."""


def load_config(path: str | Path) -> CompactorConfig:
    """The config in a YAML file. Raises as `read_values` and `make_config`."""
    return make_config(read_values(path))


def read_values(path: str | Path) -> dict[str, Any]:
    """The mapping of option names to values in a YAML file.

    Raises:
        InputFileError: the file does not exist, is not YAML, or is not a mapping.
    """
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputFileError(path, error.strerror or str(error)) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputFileError(path, f"not YAML: {error}") from None
    if not isinstance(values, dict):
        raise InputFileError(path, "expected a mapping of option names to values")
    return values


def resolved_config(
    config: CompactorConfig, threshold_cos: float | None, *, has_basis: bool = False
) -> CompactorConfig:
    """The config with its profile and its threshold filled in; `threshold_cos` is the encoder's, None without one.

    `has_basis` says that the encoder's profile names a basis, without which there is no pruned search.

    Raises:
        MissingExtraError: the profile needs an encoder and there is none.
        OptionError: the search is pruned and the encoder has no basis.
    """
    profile = config.profile or ("exact" if threshold_cos is None else "guarded")
    if profile == "exact":
        return config.model_copy(update={"profile": profile, "threshold_cos": None})
    if threshold_cos is None:
        raise MissingExtraError(f"profile {profile}", "encoder", "profile exact, which needs no encoder")
    if config.search == "pruned" and not has_basis:
        raise OptionError("search", config.search, NO_BASIS)
    own = threshold_cos if config.threshold_cos is None else config.threshold_cos
    return config.model_copy(update={"profile": profile, "threshold_cos": own})
