"""A running engine as its clients see it: how long a prompt takes to its first text, and each token after it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from lam_vllm.errors import OptionError
from lam_vllm.performance_model.amount import amount, is_number
from lam_vllm.performance_model.model import Model, same_sizes


@dataclass(frozen=True, slots=True)
class Served:
    """Five coefficients of one model on one engine, one request at a time. They hold for no other model.

    Raises:
        OptionError: a coefficient is not a finite number of at least 0; `source` is not a text, or empty.
    """

    fixed_seconds: float
    """Of a request, before its first text: HTTP, template, scheduling, an engine's least step."""
    seconds_per_token: float
    """Of each token that is prefilled."""
    seconds_per_pair: float
    """Of each pair of query and key in a prefill: attention."""
    decode_fixed_seconds: float
    """Of a decode step: reading the weights, and what the engine does around it."""
    decode_seconds_per_context_token: float
    """Of a decode step, for each token that it attends to."""
    source: str
    """What was measured, and how far the fit is from it."""
    model: Model | None = None
    """Of what it was measured; None: not known, and then it holds for none."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name not in ("source", "model") and not (is_number(value) and 0 <= value < math.inf):
                raise OptionError(each.name, value, "a finite number of at least 0")
        if not isinstance(self.source, str) or not self.source:
            raise OptionError("source of what was served", self.source, "a text that is not empty")

    def holds_for(self, model: Model) -> bool:
        """Whether it was measured of a model of these sizes, under whatever name."""
        return self.model is not None and same_sizes(self.model, model)


def prefill_pairs(uncached_tokens: float, cached_tokens: float) -> float:
    """Pairs of query and key in a prefill: every query with all that is cached, and with half of the others.

    Raises:
        OptionError: a number of tokens is no amount.
    """
    new, old = amount("uncached_tokens", uncached_tokens), amount("cached_tokens", cached_tokens)
    return new * (old + new / 2)


def ttft_seconds(served: Served, uncached_tokens: float, cached_tokens: float) -> float:
    """Seconds from sending a request to its first text, `cached_tokens` of its prompt being in the prefix cache.

    Raises:
        OptionError: a number of tokens is no amount.
    """
    pairs = prefill_pairs(uncached_tokens, cached_tokens)
    return served.fixed_seconds + served.seconds_per_token * uncached_tokens + served.seconds_per_pair * pairs


def decode_step_seconds(served: Served, context_tokens: float) -> float:
    """Seconds from one token of an answer to the next, `context_tokens` standing before it.

    Raises:
        OptionError: `context_tokens` is no amount.
    """
    return served.decode_fixed_seconds + served.decode_seconds_per_context_token * amount(
        "context_tokens", context_tokens
    )
