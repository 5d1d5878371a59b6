"""How long a context can get: what fits into the memory for KV cache, and into the model's window."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import takewhile

from lam_vllm.errors import OptionError
from lam_vllm.performance_model.amount import amount
from lam_vllm.performance_model.engine import Engine
from lam_vllm.performance_model.workload import Turn


def kv_capacity_tokens(engine: Engine) -> float:
    """Tokens of KV cache that each request of the batch can have, all being equally long.

    Raises:
        OptionError: the weights leave no room.
    """
    model = engine.model
    memory = engine.accounting.memory_share * engine.device.memory.value
    room = memory - model.weight_bytes
    if not room > 0:
        allowed = f"one whose weights take less than the {memory / 1e9:,.4g} GB of {engine.device.name}"
        raise OptionError("model", f"{model.name} ({model.weight_bytes / 1e9:,.4g} GB)", allowed)
    return room / (model.kv_bytes_per_token * engine.batch)


def most_context_tokens(engine: Engine) -> float:
    """The longest context that can be: the window or the KV capacity, whichever is less; the paper has no window.

    Raises:
        OptionError: the weights leave no room.
    """
    capacity = kv_capacity_tokens(engine)
    return min(capacity, engine.model.window_tokens) if engine.accounting.refuses else capacity


def check_context(engine: Engine, context_tokens: float) -> None:
    """Refuses a context that cannot be, where the accounting refuses any.

    Raises:
        OptionError: the context is negative, exceeds the model's window or does not fit into the memory.
    """
    amount("context_tokens", context_tokens)
    if not engine.accounting.refuses:
        return
    model = engine.model
    if context_tokens > model.window_tokens:
        raise OptionError(
            "context_tokens", context_tokens, f"at most {model.window_tokens:,}, the window of {model.name}"
        )
    capacity = kv_capacity_tokens(engine)
    if context_tokens > capacity:
        allowed = f"at most {capacity:,.0f}, which fit {engine.batch} at a time into {engine.device.name}"
        raise OptionError("context_tokens", context_tokens, allowed)


def exhaust_turn(limit_tokens: float, growth_tokens: float) -> int | None:
    """The first turn whose context fills the limit, when each adds `growth_tokens`; None where it does not grow.

    Raises:
        OptionError: `limit_tokens` is no amount.
    """
    amount("limit_tokens", limit_tokens)
    return math.ceil(limit_tokens / growth_tokens) if growth_tokens > 0 else None


def contexts(engine: Engine, run: Iterable[Turn], *, admitted: bool) -> list[float]:
    """What each turn sees in the end, tokens; `admitted`: its removal came before its prefill, else one turn later."""
    seen, cached = [], 0.0
    for turn in run:
        seen.append(engine.accounting.context_tokens(cached, turn, admitted=admitted))
        cached += turn.growth_tokens
    return seen


def turns_that_fit(engine: Engine, run: Iterable[Turn], *, admitted: bool) -> int:
    """How many turns from the first on fit.

    Raises:
        OptionError: the weights leave no room.
    """
    most = most_context_tokens(engine)
    return sum(1 for _ in takewhile(lambda context: context <= most, contexts(engine, run, admitted=admitted)))
