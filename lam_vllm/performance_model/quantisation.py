"""How many bytes a parameter and a number of the KV cache take, by a model's `config.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lam_vllm.errors import OptionError
from lam_vllm.performance_model.amount import is_number

BYTES = {"bfloat16": 2.0, "float16": 2.0, "float32": 4.0}
BITS = {"fp8": 8, "fbgemm_fp8": 8, "bitsandbytes": 4}
"""Of methods that name no number of bits."""
ALGORITHM_BITS = {"FP8": 8, "NVFP4": 4.5}
"""Of modelopt's algorithms; NVFP4 has a scale of 8 bits for every 16 numbers."""


def dtype_bytes(config: Mapping[str, Any]) -> float:
    """Bytes of a number that is not quantised, as those of the KV cache are.

    Raises:
        OptionError: the type is unknown.
    """
    dtype = config.get("dtype") or config.get("torch_dtype") or "bfloat16"
    if dtype not in BYTES:
        raise OptionError("dtype", dtype, ", ".join(BYTES))
    return BYTES[dtype]


def weight_bytes(config: Mapping[str, Any], parameters: float, embeddings: float) -> float:
    """Mean bytes of a parameter; embeddings and head are taken to keep the model's type.

    Raises:
        OptionError: the type, or the quantisation's bits, are unknown; or the KV cache is quantised by the file.
    """
    plain, quantised = dtype_bytes(config), config.get("quantization_config")
    if not quantised:
        return plain
    if quantised.get("kv_cache_scheme"):
        allowed = "none: the KV cache is counted in the model's own type"
        raise OptionError("kv_cache_scheme of quantization_config", quantised["kv_cache_scheme"], allowed)
    bits = _bits(quantised)
    if not (is_number(bits) and 0 < bits < math.inf):
        raise OptionError("bits of quantization_config", bits, "a number above 0")
    return (embeddings * plain + (parameters - embeddings) * float(bits) / 8) / parameters


def _bits(quantised: Mapping[str, Any]) -> Any:
    method = str(quantised.get("quant_method"))
    known: Any = BITS.get(method)
    if method == "compressed-tensors":
        known = _group_bits(quantised.get("config_groups"))
    if method == "modelopt":
        known = ALGORITHM_BITS.get(str(quantised.get("quant_algo")))
    found = 8 if quantised.get("load_in_8bit") else quantised.get("bits", known)
    if found is None:
        allowed = f"one that states `bits`, has them in its config_groups, or is one of {', '.join(BITS)}, modelopt"
        raise OptionError("quantization_config", method, allowed)
    return found


def _group_bits(groups: Any) -> Any:
    """What all groups say of their weights; None where they do not say the same."""
    try:
        (bits,) = {group["weights"]["num_bits"] for group in groups.values()}
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return bits
