"""What a config.json becomes: the sizes that are published, or a refusal that names the field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lam_vllm.errors import InputFileError, OptionError
from lam_vllm.performance_model.model import LLAMA_3_1_8B
from lam_vllm.performance_model.model_config import find_model, read_model

DENSE = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14_336,
    "vocab_size": 128_256,
    "max_position_embeddings": 131_072,
    "torch_dtype": "bfloat16",
}
MIXTRAL = DENSE | {
    "model_type": "mixtral",
    "vocab_size": 32_000,
    "max_position_embeddings": 32_768,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": None,
}
QWEN3_30B = DENSE | {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "vocab_size": 151_936,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "sliding_window": 4096,
    "use_sliding_window": False,
}
DEEPSEEK_V3 = DENSE | {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "intermediate_size": 18_432,
    "moe_intermediate_size": 2048,
    "vocab_size": 129_280,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "quantization_config": {"quant_method": "fp8"},
}


def config(folder: Path, values: dict[str, Any]) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("values", "parameters", "active", "kv_bytes"),
    [
        (DENSE, 8.030e9, 8.030e9, 131_072),  # Llama-3.1-8B
        (MIXTRAL, 46.70e9, 12.88e9, 131_072),  # Mixtral 8x7B
        (QWEN3_30B, 30.53e9, 3.35e9, 98_304),  # Qwen3-30B-A3B
        (DEEPSEEK_V3, 671.0e9, 37.55e9, 61 * 576 * 2),  # DeepSeek-V3: 37B active, its input embeddings not counted
    ],
    ids=["dense", "experts", "fine experts", "latent attention"],
)
def test_parameters_are_those_that_are_published(
    tmp_path: Path, values: dict[str, Any], parameters: float, active: float, kv_bytes: float
) -> None:
    model = read_model(config(tmp_path, values))
    assert model.parameters == pytest.approx(parameters, rel=1e-3)
    assert model.active_parameters == pytest.approx(active, rel=2e-3)
    assert model.kv_bytes_per_token == kv_bytes


def test_llama_3_1_8b_is_its_config(tmp_path: Path) -> None:
    made = read_model(config(tmp_path, DENSE))
    assert made.parameters == pytest.approx(LLAMA_3_1_8B.parameters, rel=1e-4)
    same = ("layers", "attention_width", "kv_bytes_per_token", "window_tokens", "experts")
    assert all(getattr(made, name) == getattr(LLAMA_3_1_8B, name) for name in same)
    assert find_model("llama-3.1-8b") is LLAMA_3_1_8B


def test_the_served_model_of_the_demo_is_read_from_its_folder() -> None:
    model = find_model(str(Path(__file__).parents[2] / ".models/smollm2"))
    assert (model.name, model.parameters, model.window_tokens) == ("smollm2", 134_515_008, 8192)


def test_a_quantised_model_reads_fewer_bytes(tmp_path: Path) -> None:
    four_bits = DENSE | {"quantization_config": {"quant_method": "gptq", "bits": 4}}
    embeddings = 2 * 128_256 * 4096
    four = 2 * embeddings + (8.03e9 - embeddings) / 2
    assert read_model(config(tmp_path, four_bits)).weight_bytes == pytest.approx(four, rel=1e-3)
    eight = 671e9 + 2 * 129_280 * 7168
    assert read_model(config(tmp_path, DEEPSEEK_V3)).weight_bytes == pytest.approx(eight, rel=1e-3)


@pytest.mark.parametrize(
    ("quantised", "bits"),
    [
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4}}}}, 4),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, 8),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5),
        ({"quant_method": "fbgemm_fp8"}, 8),
        ({"quant_method": "new", "bits": 3}, 3),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bits_stand_where_each_method_writes_them(tmp_path: Path, quantised: dict[str, Any], bits: float) -> None:
    embeddings = 2 * 128_256 * 4096
    expected = 2 * embeddings + (8.03e9 - embeddings) * bits / 8
    made = read_model(config(tmp_path, DENSE | {"quantization_config": quantised}))
    assert made.weight_bytes == pytest.approx(expected, rel=1e-3)
    assert made.kv_bytes_per_token == 131_072


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        (DENSE | {"sliding_window": 4096}, OptionError, "^sliding_window: 4096"),
        (
            DENSE | {"layer_types": ["full_attention", "linear_attention"]},
            OptionError,
            "^layer_types: 'linear_attention'",
        ),
        (DENSE | {"quantization_config": {"quant_method": "new"}}, OptionError, "^quantization_config: 'new' .*`bits`"),
        (
            DENSE | {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": [1]}},
            OptionError,
            "^quantization_config: 'compressed-tensors'",
        ),
        (
            DENSE
            | {
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "config_groups": {name: {"weights": {"num_bits": bits}} for name, bits in (("a", 4), ("b", 8))},
                }
            },
            OptionError,
            "^quantization_config: 'compressed-tensors'",
        ),
        (
            DENSE | {"quantization_config": {"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 8}}},
            OptionError,
            "^kv_cache_scheme of quantization_config: .*'num_bits': 8",
        ),
        (DENSE | {"model_type": "jamba"}, OptionError, "^model_type: 'jamba' .*apertus, .*llama, .*checked"),
        (DENSE | {"model_type": "qwen3_next"}, OptionError, "^model_type: 'qwen3_next' "),
        (DENSE | {"model_type": "llava", "text_config": DENSE}, OptionError, "^model_type: 'llava' "),
        (DENSE | {"model_type": None}, InputFileError, "no model_type"),
        (DENSE | {"model_type": "mistral"}, InputFileError, "no sliding_window, which a model of type mistral has"),
        (DENSE | {"model_type": "qwen3"}, InputFileError, "no head_dim, which a model of type qwen3 has to state"),
        (DENSE | {"tie_word_embeddings": 1}, InputFileError, "tie_word_embeddings: 1 is not true or false"),
        (
            QWEN3_30B | {"mlp_only_layers": [[1]]},
            InputFileError,
            r"mlp_only_layers: \[\[1\]\] is not a list of integers",
        ),
        (DENSE | {"layer_types": [None]}, InputFileError, r"layer_types: \[None\] is not a list of names"),
        (DEEPSEEK_V3 | {"moe_layer_freq": 2}, InputFileError, "moe_layer_freq: 2 is not an integer from 1 to 1"),
        (DENSE | {"torch_dtype": "int3"}, OptionError, "^dtype: 'int3'"),
        ({"model_type": "llama", "hidden_size": 8}, InputFileError, "no num_hidden_layers"),
        (DENSE | {"hidden_size": None}, InputFileError, "no hidden_size"),
        (DENSE | {"hidden_size": "wide"}, InputFileError, "hidden_size: 'wide' is not an integer from 1 to "),
        (DENSE | {"num_attention_heads": 0}, InputFileError, "num_attention_heads: 0 is not an integer from 1 to "),
        (
            DENSE | {"num_hidden_layers": True},
            InputFileError,
            "num_hidden_layers: True is not an integer from 1 to 10,000",
        ),
        (DENSE | {"vocab_size": -1}, InputFileError, "vocab_size: -1 is not an integer from 1 to "),
        (MIXTRAL | {"num_local_experts": -8}, InputFileError, "num_local_experts: -8 is not an integer from 0 to "),
        (MIXTRAL | {"num_experts_per_tok": 9}, OptionError, "^experts_per_token: 9 .*at most the 8 experts"),
        (DENSE | {"torch_dtype": ["bfloat16"]}, InputFileError, "torch_dtype: .* is not a name"),
        (
            DENSE | {"layer_types": "full_attention"},
            InputFileError,
            "layer_types: 'full_attention' is not a list of names",
        ),
        (DENSE | {"quantization_config": "fp8"}, InputFileError, "quantization_config: 'fp8' is not an object"),
        (DENSE | {"quantization_config": {"bits": -4}}, OptionError, "^bits of quantization_config: -4 .*above 0"),
        (DENSE | {"quantization_config": {"bits": "x"}}, OptionError, "^bits of quantization_config: 'x'"),
    ],
)
def test_a_model_that_the_formulas_do_not_hold_for_is_refused(
    tmp_path: Path, values: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        read_model(config(tmp_path, values))


KEYS = sorted(DENSE | MIXTRAL | QWEN3_30B | DEEPSEEK_V3)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=4,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([DENSE, MIXTRAL, QWEN3_30B, DEEPSEEK_V3]), st.sampled_from(KEYS), ANYTHING)
def test_whatever_a_config_says_it_is_a_model_or_refused(
    tmp_path: Path, values: dict[str, Any], key: str, value: object
) -> None:
    try:
        model = read_model(config(tmp_path, values | {key: value}))
    except (InputFileError, OptionError) as error:
        assert str(error)  # noqa: PT017 - either of two ends
    else:
        assert 0 < model.active_parameters <= model.parameters
