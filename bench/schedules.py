"""Recorded runs on a real vLLM under every schedule of deletion, beside what the performance model predicts."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from corpus_data import SERVED_MODEL, corpus_runs, machine, served_tokens
from schedules_capacity import fitting, most_shortened, try_at_once
from schedules_figures import Measurement, figures_of
from schedules_live import Sent, Server, measure
from schedules_prompts import Stretch, Tokens, stretches
from schedules_tables import tables
from vllm_server import serve

from lam_vllm.evaluation.live.probing import probe, served_model
from lam_vllm.performance_model.calibrate import fit_served, relative_errors
from lam_vllm.performance_model.served import Served

ARGUMENTS = (
    "--served-model-name=smollm2",
    "--lam-profile=exact",
    "--max-model-len=8192",
    "--gpu-memory-utilization=0.3",  # of the machine's memory, on the CPU platform
    "--block-size=32",
    "--enable-prefix-caching",
    "--enable-prompt-tokens-details",
    "--enforce-eager",
)


def chat_tokens() -> Tokens:
    """Token ids of chat messages as the served model's template prints them, the answer's opening included."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(SERVED_MODEL))

    def tokens(messages: Sequence[Any]) -> Sequence[int]:
        ids: Sequence[int] = tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, return_dict=False
        )
        return ids

    return tokens


def lengths(found: Sequence[Stretch], tokens: Tokens) -> tuple[list[int], list[int]]:
    """Tokens of each stretch's last prompt, whole and after deletion."""
    whole = [len(tokens(stretch.whole)) for stretch in found]
    return whole, [len(tokens(stretch.shortened)) for stretch in found]


def calibrated(server: Server, longest_tokens: int, rounds: int) -> Served:
    """The engine's coefficients out of prompts made of the package's own text, which no run holds."""
    timings = probe(server.client, served_model(server.client), longest_tokens, rounds)
    served = fit_served(timings, f"{len(timings)} prompts of up to {longest_tokens:,} tokens on the same server")
    errors = sorted(relative_errors(served, timings)[0])
    return replace(served, source=f"{served.source}; error of the fit: median {errors[len(errors) // 2]:.1%}")


def capacity(server: Server, found: Sequence[Stretch], tokens: Tokens) -> dict[str, Any]:
    """What fits into the engine's blocks at the last turn: all runs counted, and the one that loses most also tried."""
    blocks, block_tokens = server.blocks()
    whole, kept = lengths(found, tokens)
    place = most_shortened(found, whole, kept)
    tried = {}
    requests = fitting(blocks, [kept[place]], block_tokens) + 1
    for name, each in (("off", whole[place]), ("on", kept[place])):
        seen = try_at_once(server, found[place].whole, requests, plugin=name == "on")
        tried[name] = {"prompt_tokens": each, "counted": fitting(blocks, [each], block_tokens), **asdict(seen)}
    return {
        "kv_blocks": blocks,
        "block_tokens": block_tokens,
        "mean_tokens_off": sum(whole) / len(whole),
        "mean_tokens_on": sum(kept) / len(kept),
        "mean_runs_off": fitting(blocks, whole, block_tokens),
        "mean_runs_on": fitting(blocks, kept, block_tokens),
        "tried_run": found[place].run_id,
        "tried": tried,
    }


def measured(asked: argparse.Namespace) -> dict[str, Any]:
    tokens = chat_tokens()
    found = stretches(corpus_runs(), asked.turns, asked.context, asked.each, asked.runs, tokens, served_tokens())
    log = Path(tempfile.gettempdir()) / "schedules-server.log"
    with serve(SERVED_MODEL, *ARGUMENTS, f"--num-gpu-blocks-override={asked.blocks}", log=log) as process:
        server = Server(process.url)
        served = calibrated(server, max(lengths(found, tokens)[0]), asked.rounds)
        sent: list[Mapping[str, list[Sent]]] = []
        for place, stretch in enumerate(found):
            sent.append(measure(server, stretch, place, tokens, rebuild=place < asked.rebuilt))
            print(f"{place + 1} of {len(found)} runs", flush=True)
        held = capacity(server, found, tokens)
    blocks, size = held["kv_blocks"], held["block_tokens"]
    figures = figures_of(Measurement(found, sent, served, tokens, size, blocks * size))
    return {**figures, "capacity": held, "machine": machine()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="recorded runs (default: 5)")
    parser.add_argument("--each", type=int, default=3, help="of one source at most so many (default: 3)")
    parser.add_argument("--rebuilt", type=int, default=3, help="of them rebuilt every turn, at least 1 (default: 3)")
    parser.add_argument("--turns", type=int, default=8, help="first turns of each (default: 8)")
    parser.add_argument("--context", type=int, default=5_000, help="longest whole prompt, tokens (default: 5,000)")
    parser.add_argument("--rounds", type=int, default=1, help="of calibration (default: 1)")
    parser.add_argument("--blocks", type=int, default=448, help="of the KV cache, 32 tokens each (default: 448)")
    asked = parser.parse_args()
    figures = measured(asked)
    print(tables(figures))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
