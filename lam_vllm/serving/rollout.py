"""Which requests the server's default applies to, when they do not say themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from lam_vllm.errors import OptionError
from lam_vllm.messages import chain_digests
from lam_vllm.serving.options import ASKING, Options, given_in, overlaid
from lam_vllm.types import Message

_SEED = "canary"
"""Of a hash of its own, so that the canary's share and the sampled rechecks are independent."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """`canary` is the share of conversations, from 0 to 1, that the default applies to; the others are left alone.

    `models` holds defaults of models, by the name that requests carry, where they differ from the server's.
    """

    canary: float = 1.0
    models: Mapping[str, Options] = field(default_factory=dict)

    def default_for(self, model: object, default: Options) -> Options:
        """What applies to a request for `model` that says nothing."""
        return self.models.get(model, default) if isinstance(model, str) else default

    def leaves_alone(self, options: Options, messages: Sequence[Message]) -> bool:
        """Whether this conversation is outside the canary's share, and its request did not ask for anything."""
        return not options.asked and not in_canary(messages, self.canary)


def in_canary(messages: Sequence[Message], share: float) -> bool:
    """Whether the conversation is in the share, by a hash of all that stands before its first assistant message.

    Later turns do not change that, so a conversation never flips; nor do hosts differ.
    """
    if share in (0.0, 1.0):
        return share == 1.0
    opening = list(takewhile(lambda message: message.get("role") != "assistant", messages))
    digest = chain_digests(opening, _SEED)[-1:]
    return bool(digest) and int(digest[0][:13], 16) < share * 16**13


def model_defaults(values: Any, default: Options) -> dict[str, Options]:
    """The defaults of models out of the setting `models`: a mapping of served names to the options that differ.

    Raises:
        OptionError: it is no such mapping, or an option cannot have its value; the error names it by its path.
    """
    if values is None:
        return {}
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise OptionError("models", values, "a mapping of served model names to options")
    return {name: _model_default(name, value, default) for name, value in values.items()}


def _model_default(name: str, value: Any, default: Options) -> Options:
    path = f"models.{name}"
    given = given_in(value, path)
    # Whether there is an encoder, with a basis, is checked where the compactors are made: it may be loaded for this.
    options = overlaid(default, given, has_encoder=True, has_basis=True)
    if given.keys().isdisjoint(ASKING):  # an operator's `store: false` says how, not whether
        options = replace(options, mode=default.mode)
    if options.config.observations != "tool":
        raise OptionError(f"{path}.observations", options.config.observations, "tool; a request may ask for tool+user")
    return replace(options, asked=False)
