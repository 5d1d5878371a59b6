"""The kinds of models whose parameters were checked against Hugging Face's own classes (test_architectures.py)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Architecture:
    """What a `config.json` of this `model_type` leaves unsaid.

    `matrices` of a feed-forward part: three with a gate, two without. `tied`: whether one matrix serves as embedding
    and head where the file does not say. `stated`: fields whose default is a number of its own, so that a file must
    have them.
    """

    matrices: int = 3
    tied: bool = False
    stated: tuple[str, ...] = ()


_KV, _HEAD = "num_key_value_heads", "head_dim"
_LATENT = ("kv_lora_rank", "n_routed_experts", "n_shared_experts", "num_experts_per_tok", "moe_intermediate_size")
_FIRST_DENSE = "first_k_dense_replace"
_FINE = (_KV, "num_experts", "num_experts_per_tok", "moe_intermediate_size", "decoder_sparse_step")
_FEW = ("num_local_experts", "num_experts_per_tok")

ARCHITECTURES = {
    "apertus": Architecture(matrices=2),
    "arcee": Architecture(matrices=2),
    "cohere": Architecture(tied=True),
    "deepseek_v2": Architecture(stated=(*_LATENT, "q_lora_rank", _FIRST_DENSE)),
    "deepseek_v3": Architecture(stated=(*_LATENT, "q_lora_rank", _FIRST_DENSE)),
    "ernie4_5": Architecture(tied=True, stated=(_KV, _HEAD)),
    "gemma": Architecture(tied=True, stated=(_KV, _HEAD)),
    "glm": Architecture(stated=(_KV, _HEAD)),
    "glm4": Architecture(stated=(_KV, _HEAD)),
    "glm4_moe": Architecture(stated=(_KV, _HEAD, *_LATENT[1:], _FIRST_DENSE)),
    "gpt_neox": Architecture(matrices=2),
    "granite": Architecture(),
    "granitemoe": Architecture(stated=_FEW),
    "granitemoeshared": Architecture(stated=(*_FEW, "shared_intermediate_size")),
    "llama": Architecture(),
    "mistral": Architecture(stated=(_KV, "sliding_window")),
    "mixtral": Architecture(stated=(_KV, *_FEW)),
    "nemotron": Architecture(matrices=2, stated=(_KV,)),
    "olmo": Architecture(),
    "olmo2": Architecture(),
    "olmoe": Architecture(stated=("num_experts", "num_experts_per_tok")),
    "phi": Architecture(matrices=2),
    "phi3": Architecture(),
    "qwen2": Architecture(stated=(_KV,)),
    "qwen2_moe": Architecture(stated=(*_FINE, "shared_expert_intermediate_size")),
    "qwen3": Architecture(stated=(_KV, _HEAD)),
    "qwen3_moe": Architecture(stated=_FINE),
    "seed_oss": Architecture(stated=(_KV, _HEAD)),
    "smollm3": Architecture(tied=True, stated=(_KV,)),
    "starcoder2": Architecture(matrices=2, tied=True, stated=(_KV,)),
}
"""By `model_type`. All others are refused: their files may hold parts that nothing here counts."""
