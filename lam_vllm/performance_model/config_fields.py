"""What a model's `config.json` says, checked for its types before anything is counted from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from reprlib import repr as shown
from typing import Any

from lam_vllm.errors import InputFileError, OptionError
from lam_vllm.performance_model.architectures import ARCHITECTURES
from lam_vllm.performance_model.json_file import read_object

LAYERS, LARGEST = 10_000, 10**9
"""No model is near either; work over a file's layers stays bounded."""
LIMITS = {
    "num_hidden_layers": (1, LAYERS),
    "first_k_dense_replace": (0, LAYERS),
    "moe_layer_freq": (1, 1),
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
            "shared_intermediate_size",
            "decoder_sparse_step",
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
    "tie_word_embeddings": (bool, "true or false"),
    "quantization_config": (dict, "an object"),
}
LISTS = {"layer_types": (str, "a list of names"), "mlp_only_layers": (int, "a list of integers")}


def read_fields(path: Path) -> dict[str, Any]:
    """The fields in this file that are not null, each of the type that it must have.

    Raises:
        InputFileError: the file is not JSON, not an object, or a field has a value of another kind, or is not there and
            has to be; names the field.
        OptionError: it is of a `model_type` that was not checked.
    """
    config = read_object(path, "the object of a model's config.json")
    fields = {name: value for name, value in config.items() if value is not None}
    for name, allowed in _wrong(fields):
        raise InputFileError(path, f"{name}: {shown(fields[name])} is not {allowed}")
    kind = fields.get("model_type")
    if kind is None:
        raise InputFileError(path, "no model_type: expected the config.json of a decoder")
    if kind not in ARCHITECTURES:
        raise OptionError("model_type", kind, f"{', '.join(ARCHITECTURES)}: those whose sizes were checked")
    for name in ARCHITECTURES[kind].stated:
        if name not in config:
            raise InputFileError(path, f"no {name}, which a model of type {kind} has to state")
    return fields


def _wrong(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names of fields with a value that cannot be, and what would be one."""
    for name, (least, most) in LIMITS.items():
        if name in fields and not (type(fields[name]) is int and least <= fields[name] <= most):
            yield name, f"an integer from {least} to {most:,}"
    for name, (kind, allowed) in KINDS.items():
        if name in fields and not isinstance(fields[name], kind):
            yield name, allowed
    for name, (kind, allowed) in LISTS.items():
        value = fields.get(name, [])
        if not (isinstance(value, list) and all(type(each) is kind for each in value)):
            yield name, allowed
