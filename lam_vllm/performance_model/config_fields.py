"""What a model's `config.json` says, checked for its types before anything is counted from it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lam_vllm.errors import InputFileError

LAYERS, LARGEST = 10_000, 10**9
"""No model is near either; work over a file's layers stays bounded."""
LIMITS = {
    "num_hidden_layers": (1, LAYERS),
    "first_k_dense_replace": (0, LAYERS),
    **dict.fromkeys(
        (
            "hidden_size",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "intermediate_size",
            "moe_intermediate_size",
            "vocab_size",
            "max_position_embeddings",
            "kv_lora_rank",
            "q_lora_rank",
            "qk_rope_head_dim",
            "qk_nope_head_dim",
            "v_head_dim",
            "num_experts_per_tok",
        ),
        (1, LARGEST),
    ),
    **dict.fromkeys(
        (
            "num_local_experts",
            "n_routed_experts",
            "num_experts",
            "n_shared_experts",
            "shared_expert_intermediate_size",
            "decoder_sparse_step",
            "moe_layer_freq",
            "sliding_window",
        ),
        (0, LARGEST),
    ),
}
"""Of every number the least and the most that it may be, where it is there."""
KINDS = {
    "dtype": (str, "a name"),
    "torch_dtype": (str, "a name"),
    "model_type": (str, "a name"),
    "layer_types": (list, "a list"),
    "mlp_only_layers": (list, "a list"),
    "quantization_config": (dict, "an object"),
}


def read_fields(path: Path) -> dict[str, Any]:
    """The fields of the text model in this file that are not null, each of the type that it must have.

    Raises:
        InputFileError: the file is not JSON, not an object, or a field has a value of another kind; names the field.
    """
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputFileError(path, f"not a JSON file: {error}") from None
    if not isinstance(config, dict):
        raise InputFileError(path, "expected the object of a model's config.json")
    text = {**config, **config["text_config"]} if isinstance(config.get("text_config"), dict) else config
    fields = {name: value for name, value in text.items() if value is not None}
    for name, allowed in _wrong(fields):
        raise InputFileError(path, f"{name}: {fields[name]!r:.80} is not {allowed}")
    return fields


def _wrong(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names of fields with a value that cannot be, and what would be one."""
    for name, (least, most) in LIMITS.items():
        if name in fields and not (type(fields[name]) is int and least <= fields[name] <= most):
            yield name, f"an integer from {least} to {most:,}"
    for name, (kind, allowed) in KINDS.items():
        if name in fields and not isinstance(fields[name], kind):
            yield name, allowed
