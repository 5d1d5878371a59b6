"""What one turn costs a request: weights, prefill, context, compaction, and what is prefilled again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import astuple, dataclass, replace

from lam_vllm.errors import OptionError
from lam_vllm.performance_model.amount import amount
from lam_vllm.performance_model.capacity import check_context
from lam_vllm.performance_model.engine import Engine


@dataclass(frozen=True, slots=True)
class TurnCost:
    """Seconds by part.

    `weights`: reading them in the answer's decode steps, shared over the batch. `prefill`: the part linear in what is
    prefilled. `attention`: of what is prefilled, over its context. `kv_read`: reading the cache in the decode steps.
    `compaction`: deciding what goes. `reprefill`: prefilling again what lies behind a change. `fixed`: of a request
    before its first token, whatever is prefilled, where that was measured.
    """

    weights: float
    prefill: float
    attention: float
    kv_read: float
    compaction: float = 0.0
    reprefill: float = 0.0
    fixed: float = 0.0

    @property
    def total(self) -> float:
        """All parts together."""
        return float(sum(astuple(self)))

    @property
    def context(self) -> float:
        """What grows with the context (the paper's A)."""
        return self.attention + self.kv_read

    @property
    def phi(self) -> float:
        """Share of the context in a turn that neither compacts nor prefills again (table 7); 0 in one without work."""
        whole = self.fixed + self.weights + self.prefill + self.context
        return self.context / whole if whole else 0.0

    @property
    def ceiling(self) -> float:
        """How many times as fast a turn were with a context that costs nothing: 1 / (1 - phi)."""
        return 1 / (1 - self.phi)

    @property
    def ttft(self) -> float:
        """Seconds to the first token, which comes out of the prefill; queues are not counted."""
        return self.fixed + self.compaction + self.reprefill + self.prefill + self.attention

    def __add__(self, other: TurnCost) -> TurnCost:
        return TurnCost(*(one + two for one, two in zip(astuple(self), astuple(other), strict=True)))


NOTHING = TurnCost(0.0, 0.0, 0.0, 0.0)


def turn_cost(engine: Engine, prefilled_tokens: float, decoded_tokens: float, context_tokens: float) -> TurnCost:
    """The cost of a turn that sees `context_tokens` in the end, those that it prefills and decodes included.

    Raises:
        OptionError: a number is no amount, the context cannot be, or it is shorter than what is prefilled and decoded.
    """
    new = amount("prefilled_tokens", prefilled_tokens) + amount("decoded_tokens", decoded_tokens)
    check_context(engine, context_tokens)
    accounting = engine.accounting
    if accounting.refuses and context_tokens < new:  # the paper's contexts are what compaction leaves of such turns
        raise OptionError("context_tokens", context_tokens, f"at least the {new:g} that are prefilled and decoded")
    return TurnCost(
        weights=decoded_tokens * engine.weight_seconds(engine.batch),
        prefill=engine.prefill_seconds(prefilled_tokens),
        attention=engine.attention_seconds(accounting.prefill_pairs(prefilled_tokens, decoded_tokens, context_tokens)),
        kv_read=engine.kv_read_seconds(accounting.decode_pairs(decoded_tokens, context_tokens)),
        fixed=engine.fixed_seconds,
    )


def rebuild_seconds(engine: Engine, tokens: float) -> float:
    """Prefill of so many tokens with nothing cached.

    Raises:
        OptionError: `tokens` is no amount.
    """
    pairs = engine.accounting.prefill_pairs(tokens, 0.0, tokens)
    return engine.prefill_seconds(tokens) + engine.attention_seconds(pairs)


def reprefill_seconds(engine: Engine, arriving_tokens: float, stale_tokens: float, cached_tokens: float) -> float:
    """What a prefill of `arriving_tokens` takes longer when the last `stale_tokens` of the cache go with it.

    Raises:
        OptionError: a number is no amount, or more is stale than is cached.
    """
    if not stale_tokens <= cached_tokens:
        raise OptionError("stale_tokens", stale_tokens, f"at most the {cached_tokens:g} that are cached")
    again = engine.prefill_seconds(arriving_tokens + stale_tokens) - engine.prefill_seconds(arriving_tokens)
    return again + engine.attention_seconds(engine.accounting.prefill_pairs(stale_tokens, 0.0, cached_tokens))


def total(costs: Collection[TurnCost]) -> TurnCost:
    """The parts of all of these together."""
    return sum(costs, NOTHING)


def mean(costs: Collection[TurnCost]) -> TurnCost:
    """The parts per turn.

    Raises:
        OptionError: there is no turn.
    """
    if not costs:
        raise OptionError("turns", 0, "at least 1 turn")
    parts = (part / len(costs) for part in astuple(total(costs)))
    return TurnCost(*parts)


def with_extra(cost: TurnCost, compaction: float, reprefill: float = 0.0) -> TurnCost:
    """The cost of a turn that also compacts and prefills again."""
    return replace(cost, compaction=compaction, reprefill=reprefill)
