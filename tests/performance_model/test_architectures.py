"""Every kind of model that a config.json may be of has as many parameters here as in Hugging Face's own class."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from lam_vllm.errors import InputFileError
from lam_vllm.performance_model.architectures import ARCHITECTURES
from lam_vllm.performance_model.model_config import read_model

SIZES = {
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 96,
    "intermediate_size": 3584,
    "vocab_size": 32_000,
    "max_position_embeddings": 4096,
    "sliding_window": None,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
FEW = {"num_local_experts": 8, "num_experts_per_tok": 2}
FINE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512, "decoder_sparse_step": 2}
ROUTED = {
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 512,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
LATENT = ROUTED | {
    "kv_lora_rank": 256,
    "q_lora_rank": 384,
    "qk_rope_head_dim": 32,
    "qk_nope_head_dim": 64,
    "v_head_dim": 64,
}
OF_ITS_OWN: dict[str, dict[str, Any]] = {
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT,
    "glm4_moe": ROUTED,
    "granitemoe": FEW,
    "granitemoeshared": FEW | {"shared_intermediate_size": 1024},
    "mixtral": FEW,
    "olmoe": {"num_experts": 8, "num_experts_per_tok": 2},
    "qwen2_moe": FINE | {"shared_expert_intermediate_size": 1024, "mlp_only_layers": [1]},
    "qwen3_moe": FINE | {"mlp_only_layers": [3]},
}
WITHOUT = {"gpt_neox": ("num_key_value_heads", "head_dim")}
"""Fields that files of this kind do not have."""
BIASES = 1.5e-3
"""What is not counted is so small a share of these small models."""


def described(kind: str, leave_out: Collection[str] = ()) -> dict[str, Any]:
    values = SIZES | {"model_type": kind, "tie_word_embeddings": False} | OF_ITS_OWN.get(kind, {})
    missing = (*leave_out, *WITHOUT.get(kind, ()))
    return {name: value for name, value in values.items() if name not in missing}


def counted(folder: Path, values: dict[str, Any]) -> float:
    path = folder / "config.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    return read_model(path).parameters


def built(values: dict[str, Any]) -> int:
    """Parameters of the library's own class, without their memory."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**values))
    return sum(each.numel() for each in model.parameters())


@pytest.mark.filterwarnings("ignore")  # the library's own, about kernels that are not installed
@pytest.mark.parametrize("leave_out", ["nothing", "tie_word_embeddings", "head_dim", "num_key_value_heads"])
@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_parameters_are_those_of_the_class(tmp_path: Path, kind: str, leave_out: str) -> None:
    """Where the class has a default of its own, the file has to say what it is."""
    values = described(kind, [leave_out])
    if leave_out in ARCHITECTURES[kind].stated:
        with pytest.raises(InputFileError, match=f"no {leave_out}, "):
            counted(tmp_path, values)
        return
    assert counted(tmp_path, values) == pytest.approx(built(values), rel=BIASES)


@pytest.mark.parametrize("kind", [kind for kind, each in ARCHITECTURES.items() if each.stated])
def test_what_has_to_be_stated_is_asked_for(tmp_path: Path, kind: str) -> None:
    for name in ARCHITECTURES[kind].stated:
        with pytest.raises(InputFileError, match=f"no {name}, which a model of type {kind} has to state"):
            counted(tmp_path, described(kind, [name]))
