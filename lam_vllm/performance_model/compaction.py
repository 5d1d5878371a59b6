"""Seconds that every method takes to decide what goes, by the tokens that it looks at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import partial
from typing import TypeAlias

from lam_vllm.errors import OptionError
from lam_vllm.performance_model.amount import amount
from lam_vllm.performance_model.engine import Engine
from lam_vllm.performance_model.turn import rebuild_seconds

Compaction: TypeAlias = Callable[[Engine, float], float]
"""Seconds for this many tokens on this engine's device; an `OptionError` where that is no amount."""

WINDOW_TOKENS, DIMENSIONS = 512, 768
"""The paper's windows, and the width of its encoder, bge-base-en-v1.5."""
BYTES_PER_TOKEN = 3.68
"""Text of tool output (table 1)."""
PAIRS_PER_WINDOW = 8
"""Verified on average; inferred from the cell `verify` of table 13."""
QUANTIZED_BYTES, DIGESTED_BYTES = 6, 2
"""Read and written for one coordinate: a float and two bytes of it, then those two. Inferred from table 13's cells."""
LLMLINGUA_PARAMETERS, LLMLINGUA_LAYERS, LLMLINGUA_WIDTH = 559.9e6, 24, 1024
"""XLM-RoBERTa large over windows of 512: our guess at which model stands in the paper."""


@dataclass(frozen=True, slots=True)
class Stages:
    """Seconds of the near-duplicate rule by stage (table 13)."""

    encode: float
    quantize: float
    digests: float
    verify: float
    codec: float

    @property
    def total(self) -> float:
        """All stages together."""
        return float(sum(astuple(self)))

    @property
    def after_encoding(self) -> float:
        """What is left where the embeddings are known."""
        return self.total - self.encode


def stages(engine: Engine, tokens: float) -> Stages:
    """The near-duplicate rule (L1) over so many tokens, and the codec (L2) over their text.

    Raises:
        OptionError: `tokens` is no amount.
    """
    amount("tokens", tokens)
    device = engine.device
    coordinates = tokens / WINDOW_TOKENS * DIMENSIONS
    return Stages(
        encode=tokens / device.encoder_rate.value,
        quantize=QUANTIZED_BYTES * coordinates / device.quantize_rate.value,
        digests=DIGESTED_BYTES * coordinates / device.hash_rate.value,
        verify=PAIRS_PER_WINDOW * tokens / WINDOW_TOKENS / device.verify_rate.value,
        codec=BYTES_PER_TOKEN * tokens / device.codec_rate.value,
    )


def nothing(engine: Engine, tokens: float) -> float:  # noqa: ARG001 - one form for all methods
    """No compaction, and masking, which decides by age alone."""
    amount("tokens", tokens)
    return 0.0


def near_duplicates(engine: Engine, tokens: float) -> float:
    """L1 with its encoder."""
    return stages(engine, tokens).total


def repeated_lines(engine: Engine, tokens: float) -> float:
    """L0: a hash of every line."""
    return BYTES_PER_TOKEN * amount("tokens", tokens) / engine.device.hash_rate.value


def near_duplicates_then_lines(engine: Engine, tokens: float) -> float:
    """L1, then L0: the paper's method, and what `guarded` and `paper` do."""
    return near_duplicates(engine, tokens) + repeated_lines(engine, tokens)


def shared_lines(engine: Engine, tokens: float) -> float:
    """Profile `exact`, on one core."""
    return amount("tokens", tokens) / engine.device.exact_rate.value


def semdedup(engine: Engine, tokens: float) -> float:
    """SemDeDup: the encoder alone; clustering is not counted."""
    return amount("tokens", tokens) / engine.device.encoder_rate.value


def llmlingua2(engine: Engine, tokens: float) -> float:
    """LLMLingua-2: one pass of its classifier, on the device that serves."""
    attention = 4 * LLMLINGUA_LAYERS * LLMLINGUA_WIDTH * WINDOW_TOKENS
    return (2 * LLMLINGUA_PARAMETERS + attention) * amount("tokens", tokens) / engine.device.prefill_rate


def summarise_cached(ratio: float) -> Compaction:
    """Summaries of 1/`ratio` of the length, by the model that serves, out of its cache: decoding alone (table 2).

    Raises:
        OptionError: `ratio` is below 1.
    """
    return partial(_summarise_cached, _checked(ratio))


def summarise_afresh(ratio: float) -> Compaction:
    """The same with nothing cached: prefill first, then decoding over a growing context (section M.2).

    Raises:
        OptionError: `ratio` is below 1.
    """
    return partial(_summarise_afresh, _checked(ratio))


def _summarise_cached(ratio: float, engine: Engine, tokens: float) -> float:
    return tokens / ratio * (engine.weight_seconds(1) + engine.kv_read_seconds(tokens))


def _summarise_afresh(ratio: float, engine: Engine, tokens: float) -> float:
    prefill = rebuild_seconds(engine, tokens)
    step = engine.weight_seconds(1) + engine.kv_read_seconds(tokens + tokens / (2 * ratio))
    return prefill + tokens / ratio * step


def _checked(ratio: float) -> float:
    if not ratio >= 1:
        raise OptionError("ratio", ratio, "a number of at least 1")
    return ratio
