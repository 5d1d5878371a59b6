"""A language model as the performance model sees it: what a token costs in parameters, attention and KV cache."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lam_vllm.errors import OptionError
from lam_vllm.performance_model.amount import is_number


@dataclass(frozen=True, slots=True)
class Model:
    """Sizes of a decoder with full attention in every layer; a mixture of experts has more than one expert.

    `parameters` are all of them (embeddings included, as in the paper), `active_parameters` those that one token goes
    through. `attention_width` is heads times the mean of the widths of keys and values (d): one query costs 4 L d FLOP
    for every key. Routing is taken to be uniform.

    Raises:
        OptionError: a size is not a finite number above 0; more is active than there is, or a dense model is not wholly
            active.
    """

    name: str
    parameters: float
    active_parameters: float
    layers: int
    attention_width: float
    kv_bytes_per_token: float
    window_tokens: int
    weight_bytes_per_parameter: float = 2
    experts: int = 1
    experts_per_token: int = 1

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if name != "name" and not (is_number(value) and 0 < value < math.inf):
                raise OptionError(name, value, "a finite number above 0")
        if self.experts_per_token > self.experts:
            raise OptionError("experts_per_token", self.experts_per_token, f"at most the {self.experts} experts")
        everything = self.experts_per_token == self.experts
        if self.active_parameters > self.parameters or (everything and self.active_parameters < self.parameters):
            allowed = f"{'exactly' if everything else 'at most'} the {self.parameters:,.0f} parameters"
            raise OptionError("active_parameters", self.active_parameters, allowed)

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights."""
        return self.parameters * self.weight_bytes_per_parameter

    def read_bytes(self, tokens: float) -> float:
        """Bytes of the weights that one step with so many tokens reads, on average.

        Of E experts, each token takes k: a step leaves one untouched with probability (1 - k/E)^tokens.
        """
        routed = self.experts - self.experts_per_token
        if not routed:
            return self.weight_bytes
        expert = (self.parameters - self.active_parameters) / routed
        untouched = self.experts * float((1 - self.experts_per_token / self.experts) ** tokens)
        return (self.parameters - untouched * expert) * self.weight_bytes_per_parameter


def same_sizes(one: Model, other: Model) -> bool:
    """Whether a token costs the same in both, within 0.1%: all sizes but the window's are the same, names may differ.

    Fine-tuning changes none of them; published numbers of parameters are rounded.
    """
    compared = (name for name in Model.__dataclass_fields__ if name not in ("name", "window_tokens"))
    return all(math.isclose(getattr(one, name), getattr(other, name), rel_tol=1e-3) for name in compared)


LLAMA_3_1_8B = Model(
    name="Llama-3.1-8B",
    parameters=8.03e9,
    active_parameters=8.03e9,
    layers=32,
    attention_width=4096,
    kv_bytes_per_token=2 * 32 * 8 * 128 * 2,  # keys and values, layers, heads, width, bytes
    window_tokens=131_072,
)
"""Sizes of its config.json; parameters as its publisher rounds them, which gives table 7 (test_paper_cells.py)."""
