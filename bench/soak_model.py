"""A model that costs next to nothing: random weights, and the words and the chat template of the served model."""

from __future__ import annotations

from pathlib import Path

from corpus_data import SERVED_MODEL

CONTEXT_TOKENS = 8_192


def make_tiny_model(folder: Path) -> Path:
    """A Llama of two layers, written to `folder`; what it says means nothing."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(SERVED_MODEL)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,  # heads of 32, the smallest that vLLM's CPU attention takes
        num_key_value_heads=1,
        max_position_embeddings=CONTEXT_TOKENS,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder
