"""Two ways of counting the same turn: as the paper's tables do, and as the work is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from lam_vllm.performance_model.device import Constant
from lam_vllm.performance_model.workload import Turn

HALF_ATTENTION = Constant(0.5, "1", "not printed; of 0, 1/2 and 1 the one that gives 14 printed cells", "fitted")
VLLM_MEMORY_SHARE = 0.92
"""vLLM 0.32's default of `gpu_memory_utilization`."""


@dataclass(frozen=True, slots=True)
class PaperAccounting:
    """What gives the printed tables. Contexts that no model or memory can hold are not refused.

    Prefill is not credited with what was removed before it, a turn sees the compacted context under every schedule,
    attention over the cache costs half, and the compactor is charged for the answer too.
    """

    name: str = "paper"
    memory_share: float = 1.0
    """Of the device's memory, for weights and KV cache."""
    refuses: bool = False
    """Whether a context that cannot be is an error."""
    reads_weights_in_prefill: bool = False
    """Whether a prefill lasts at least as long as reading the weights."""
    takes_measured: bool = False
    """Whether coefficients measured on an engine stand in for the formulas."""

    def prefilled_tokens(self, turn: Turn, *, admitted: bool) -> float:  # noqa: ARG002 - one form for both
        """All that arrives, though it be `admitted`: shortened before."""
        return turn.arriving_tokens

    def context_tokens(self, cached_tokens: float, turn: Turn, *, admitted: bool) -> float:  # noqa: ARG002
        """What the turn sees in the end: the compacted context."""
        return cached_tokens + turn.growth_tokens

    def prefill_pairs(self, prefilled_tokens: float, decoded_tokens: float, context_tokens: float) -> float:  # noqa: ARG002
        """Pairs of query and key in a prefill, each of which costs 4 L d FLOP: half of every query with every key."""
        return HALF_ATTENTION.value * prefilled_tokens * context_tokens

    def decode_pairs(self, decoded_tokens: float, context_tokens: float) -> float:
        """Cached tokens that the answer's steps read: each the whole context."""
        return decoded_tokens * context_tokens

    def examined_tokens(self, turn: Turn) -> float:
        """What a compactor that tests each arrival looks at: all that the turn adds before removal (Delta)."""
        return turn.arriving_tokens + turn.decoded_tokens


@dataclass(frozen=True, slots=True)
class ExactAccounting:
    """What happens: the default for users. What the model or the memory cannot hold is an error.

    Every query meets every cached token and, on average, half of those that are prefilled with it; only what was not
    removed before is prefilled; what arrives whole is seen whole; a prefill reads the weights at least once.
    """

    name: str = "exact"
    memory_share: float = VLLM_MEMORY_SHARE
    refuses: bool = True
    reads_weights_in_prefill: bool = True
    takes_measured: bool = True

    def prefilled_tokens(self, turn: Turn, *, admitted: bool) -> float:
        """What arrives, less what was removed before; at least one token, without which an engine answers nothing."""
        return max(1.0, turn.kept_tokens if admitted else turn.arriving_tokens)

    def context_tokens(self, cached_tokens: float, turn: Turn, *, admitted: bool) -> float:
        """The cache, what arrives and stays, and the answer; where nothing arrives, the last cached is prefilled again.

        Where nothing is cached either, one token is taken to arrive.
        """
        arriving = turn.kept_tokens if admitted else turn.arriving_tokens
        least = self.prefilled_tokens(turn, admitted=admitted) + turn.decoded_tokens
        return max(cached_tokens + arriving + turn.decoded_tokens, least)

    def prefill_pairs(self, prefilled_tokens: float, decoded_tokens: float, context_tokens: float) -> float:
        """All with what is cached, and half with one another."""
        return prefilled_tokens * max(0.0, context_tokens - decoded_tokens - prefilled_tokens / 2)  # never by rounding

    def decode_pairs(self, decoded_tokens: float, context_tokens: float) -> float:
        """Each step reads what stands before it."""
        return decoded_tokens * (context_tokens - decoded_tokens / 2)

    def examined_tokens(self, turn: Turn) -> float:
        """Tool output."""
        return turn.observed_tokens


PAPER = PaperAccounting()
EXACT = ExactAccounting()
Accounting: TypeAlias = PaperAccounting | ExactAccounting
ACCOUNTINGS: dict[str, Accounting] = {EXACT.name: EXACT, PAPER.name: PAPER}
