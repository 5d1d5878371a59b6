"""A model out of the `config.json` that Hugging Face has beside its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lam_vllm.errors import InputFileError, OptionError
from lam_vllm.performance_model.architectures import ARCHITECTURES
from lam_vllm.performance_model.config_fields import read_fields
from lam_vllm.performance_model.json_file import is_file
from lam_vllm.performance_model.model import LLAMA_3_1_8B, Model
from lam_vllm.performance_model.quantisation import dtype_bytes, weight_bytes


def find_model(name: str) -> Model:
    """The model that is built in under this name, or the one of this `config.json` or of a folder that holds one.

    Raises:
        OptionError: there is neither, or the file describes a model that the formulas do not hold for.
        InputFileError: the file is not a model's config.
    """
    if name.lower() == LLAMA_3_1_8B.name.lower():
        return LLAMA_3_1_8B
    for path in (Path(name), Path(name) / "config.json"):
        if is_file(str(path)):
            return read_model(path)
    raise OptionError("model", name, f"{LLAMA_3_1_8B.name}, a config.json, or a folder that holds one")


def read_model(path: Path) -> Model:
    """The model of a `config.json`: dense or mixture of experts, grouped or multi-head latent attention.

    Parameters are counted from the shapes: attention, feed-forward, router, norms, embeddings; no biases.

    Raises:
        InputFileError: the file is not JSON, or a size is missing or none; names it.
        OptionError: the kind of model was not checked, a layer has a sliding window or no attention, or the bits of the
            weights or of the KV cache are not known.
    """
    config = read_fields(path)
    _refuse_partial_attention(config)
    try:
        return _model(path.resolve().parent.name, config)
    except KeyError as error:
        raise InputFileError(path, f"no {error.args[0]}: expected the config.json of a decoder") from None


@dataclass(frozen=True, slots=True)
class _Attention:
    parameters: float
    width: float
    kv_numbers: float


def _model(name: str, config: Mapping[str, Any]) -> Model:
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    attention = _latent(config) if config.get("kv_lora_rank") else _grouped(config)
    architecture = ARCHITECTURES[config["model_type"]]
    matrices, tied = architecture.matrices, config.get("tie_word_embeddings", architecture.tied)
    embeddings = config["vocab_size"] * hidden * (1 if tied else 2)
    shared = embeddings + hidden + layers * (attention.parameters + 2 * hidden)
    expert_layers, experts, per_token = _experts(config)
    shared += (layers - expert_layers) * matrices * hidden * config["intermediate_size"]
    expert = 0.0
    if expert_layers:
        width = config.get("moe_intermediate_size") or config["intermediate_size"]
        shared += expert_layers * hidden * (experts + matrices * _always_active(config, width))
        expert = expert_layers * matrices * hidden * width
    parameters = shared + experts * expert
    return Model(
        name=name,
        parameters=parameters,
        active_parameters=shared + per_token * expert,
        layers=layers,
        attention_width=attention.width,
        kv_bytes_per_token=layers * attention.kv_numbers * dtype_bytes(config),
        window_tokens=config["max_position_embeddings"],
        weight_bytes_per_parameter=weight_bytes(config, parameters, embeddings),
        experts=experts if expert_layers else 1,
        experts_per_token=per_token if expert_layers else 1,
    )


def _grouped(config: Mapping[str, Any]) -> _Attention:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    head = config.get("head_dim") or hidden // heads
    kv_heads = config.get("num_key_value_heads") or heads
    return _Attention(2 * hidden * head * (heads + kv_heads), heads * head, 2 * kv_heads * head)


def _latent(config: Mapping[str, Any]) -> _Attention:
    """DeepSeek's: the cache holds one compressed vector for a token, of which keys and values of all heads are made."""
    hidden, heads, rank = config["hidden_size"], config["num_attention_heads"], config["kv_lora_rank"]
    rope, plain, value = config["qk_rope_head_dim"], config["qk_nope_head_dim"], config["v_head_dim"]
    query_rank = config.get("q_lora_rank")
    queries = heads * (plain + rope)
    asking = query_rank * (hidden + queries + 1) if query_rank else hidden * queries
    parameters = asking + hidden * (rank + rope) + rank * (heads * (plain + value) + 1) + heads * value * hidden
    return _Attention(parameters, heads * (plain + rope + value) / 2, rank + rope)


def _experts(config: Mapping[str, Any]) -> tuple[int, int, int]:
    """How many layers have experts, how many experts such a layer has, and how many a token takes."""
    keys = ("num_local_experts", "n_routed_experts", "num_experts")
    experts = next((config[key] for key in keys if config.get(key)), 0)
    if not experts:
        return 0, 0, 0
    dense = set(config.get("mlp_only_layers") or ()) | set(range(config.get("first_k_dense_replace") or 0))
    every = config.get("decoder_sparse_step") or 1
    layers = range(config["num_hidden_layers"])
    return (
        sum(layer not in dense and (layer + 1) % every == 0 for layer in layers),
        experts,
        config["num_experts_per_tok"],
    )


def _always_active(config: Mapping[str, Any], width: int) -> float:
    """Width of the experts that every token takes."""
    stated = config.get("shared_expert_intermediate_size") or config.get("shared_intermediate_size")
    return float(stated or (config.get("n_shared_experts") or 0) * width)


def _refuse_partial_attention(config: Mapping[str, Any]) -> None:
    allowed = "full attention in every layer: the formulas charge every token for the whole context"
    others = {str(kind) for kind in config.get("layer_types") or ()} - {"full_attention"}
    if others:
        raise OptionError("layer_types", ", ".join(sorted(others)), allowed)
    slides = config.get("sliding_window") and config.get("use_sliding_window", True)
    if slides and not config.get("layer_types"):
        raise OptionError("sliding_window", config["sliding_window"], allowed)
