"""The product's own profiles, as methods among the baselines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lam_vllm import Compactor
from lam_vllm.config import Profile, make_config
from lam_vllm.encoders.base import Encoder
from lam_vllm.evaluation.corpus import Run


class ProfileMethod:
    """A `Method`: a `Compactor` over each whole run, with nothing remembered from another.

    `threshold_cos` is t, None for the encoder's own; `exact` has none. `observations` as in the config.

    Raises:
        OptionError: t is not above 0 and at most 1, or there are no such observations.
        MissingExtraError: the profile needs an encoder and none was given.
    """

    seed = 0
    verbatim = True

    def __init__(
        self,
        profile: Profile,
        count_tokens: Callable[[str], int],
        encoder: Encoder | None = None,
        threshold_cos: float | None = None,
        *,
        directory_aliases: bool = False,
        observations: str = "tool",
    ) -> None:
        self.name = str(profile)
        options = {
            "profile": profile,
            "threshold_cos": threshold_cos,
            "directory_aliases": directory_aliases,
            "observations": observations,
        }
        self._compactor = Compactor(make_config(options), count_tokens, encoder)
        threshold = self._compactor.config.threshold_cos
        chosen = [] if threshold is None else [f"t={threshold:g}"]
        self.setting = ", ".join([*chosen, *(["directory aliases"] if directory_aliases else [])])

    def shorten(self, run: Run) -> list[Any]:
        """The run's messages as the profile compacts them."""
        return self._compactor.compact(run.messages, use_memo=False).messages
