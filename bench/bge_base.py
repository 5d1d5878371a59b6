"""Tokens per second of an encoder of the paper's shape, on one and on two threads.

The paper encodes with bge-base-en-v1.5: BERT of 12 layers and 768 numbers, its first token taken. The weights here are
random (their values do not change the time), the tokenizer is MiniLM's, which has the same words. The texts are windows
of the package's own files that fill the model's 512 positions. Prints a table, and the figures as one line of JSON.
"""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree, ignore_patterns
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from corpus_data import machine
from pooled import encode_at_once, pool_of, tokens_of
from programs import parser_of
from stored import markdown

from lam_vllm.encoders import load_encoder
from lam_vllm.encoders.base import BatchEncoder
from lam_vllm.encoders.two_pass import FastPass, choose_pass, sample_windows
from lam_vllm.evaluation.encoder_variants import packaged_folder

PAPER = {"8": 2_937, "16": 4_647}
"""Context tokens per second of the paper's compactor by its threads."""
THREADS = (1, 2)
WINDOWS = 16
"""Two batches of 8, so that two threads have work where batches are quickest."""
CHOICE_WINDOWS = 4


def build(folder: Path) -> Path:
    """The folder, made a BERT-base with CLS pooling and random weights (seed 0)."""
    import torch
    from transformers import BertConfig, BertModel

    copytree(packaged_folder(), folder, ignore=ignore_patterns("config.json", "*.safetensors"))
    torch.manual_seed(0)
    BertModel(BertConfig()).save_pretrained(folder)  # the config's defaults are BERT-base
    pooling = {"word_embedding_dimension": 768, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooling), encoding="utf-8")
    return folder


def rate(encoder: BatchEncoder, fast: FastPass, texts: list[str], threads: int) -> int:
    """Tokens per second of a pool of so many threads that has all windows at once and remembers none."""
    with pool_of(encoder, fast, threads) as pool:
        began = perf_counter()
        encode_at_once(pool, [texts], "timed")
        return round(tokens_of(encoder, texts) / (perf_counter() - began))


def measure(windows: int) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        encoder = load_encoder(str(build(Path(folder) / "bge-base-shaped")))
        chosen = choose_pass(encoder, sample_windows(encoder, min(CHOICE_WINDOWS, windows)))
        canonical = next(way for way in encoder.passes() if way.canonical)
        fp32 = FastPass(canonical, 0.0, {}, "")
        texts = sorted(sample_windows(encoder, 4 * windows), key=len)[-windows:]
        rates = {
            name: {str(threads): rate(encoder, fast, texts, threads) for threads in THREADS}
            for name, fast in (("chosen", chosen), ("fp32", fp32))
        }
    return {"bge_base_tokens_per_second": {"pass": chosen.way.label, **rates, "paper": PAPER}}


def table(figures: dict[str, Any]) -> str:
    line = figures["bge_base_tokens_per_second"]
    rows = {line["pass"]: line["chosen"], "fp32, one at a time": line["fp32"], "the paper": line["paper"]}
    threads = [*map(str, THREADS), *PAPER]
    return markdown(
        ("tokens per second, threads", *threads),
        ((name, *(f"{found[n]:,}" if n in found else "-" for n in threads)) for name, found in rows.items()),
    )


def main() -> None:
    asked = parser_of(__doc__).parse_args()
    figures = measure(2 if asked.quick else WINDOWS)
    print(f"{machine()}\n{table(figures)}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
