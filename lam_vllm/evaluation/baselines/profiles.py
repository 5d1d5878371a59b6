"""The product's own profiles, as methods among the baselines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lam_vllm import Compactor, CompactorConfig
from lam_vllm.config import Profile
from lam_vllm.encoders.base import Encoder
from lam_vllm.evaluation.corpus import Run


class ProfileMethod:
    """A `Method`: a `Compactor` over each whole run, with nothing remembered from another.

    `threshold_cos` is t, None for the encoder's own; `exact` has none.

    Raises:
        MissingExtraError: the profile needs an encoder and none was given.
        ValueError: t is not above 0 and at most 1.
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
    ) -> None:
        self.name = str(profile)
        config = CompactorConfig(profile=profile, threshold_cos=threshold_cos, directory_aliases=directory_aliases)
        self._compactor = Compactor(config, count_tokens, encoder)
        threshold = self._compactor.config.threshold_cos
        chosen = [] if threshold is None else [f"t={threshold:g}"]
        self.setting = ", ".join([*chosen, *(["directory aliases"] if directory_aliases else [])])

    def shorten(self, run: Run) -> list[Any]:
        """The run's messages as the profile compacts them."""
        return self._compactor.compact(run.messages, use_memo=False).messages
